"""doctor and init on a stand-in, findings on tables that are not as they should be, and the table in the docs."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import everturn
from everturn.backend import drive
from everturn.backends.dynamodb import doctor
from everturn.backends.dynamodb.client import DynamoDBClient, TableAddress
from everturn.backends.dynamodb.create_table import definition
from everturn.backends.dynamodb.stored_form import PURGE
from everturn.backends.dynamodb.table import Table
from everturn.cli import main
from tests.integration.dynamodb.scripted_server import answer, error, scripted

PAGE = Path(__file__).parents[3] / "docs" / "storage-dynamodb.md"
ON_DEMAND = {"BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"}}
ABOUT = {**definition("everturn"), **ON_DEMAND, "TableStatus": "ACTIVE", "DeletionProtectionEnabled": True}
RECOVERS = {
    "ContinuousBackupsDescription": {"PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "ENABLED"}}
}
PURGES = {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": PURGE}}
FIXED = {"ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}, "BillingModeSummary": None}


def facts(about: dict[str, Any] | None = None, **more: Any) -> doctor.TableFacts:
    return doctor.TableFacts(**{"table": {**ABOUT, **(about or {})}, "backups": RECOVERS, "purge": PURGES, **more})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (facts({"DeletionProtectionEnabled": False}), "deletion protection is off"),
        (facts(FIXED), "its capacity is fixed: 5 read and 5 write units"),
        (facts({"GlobalSecondaryIndexes": [{"IndexName": "mine"}]}), "it has indexes (mine)"),
        (facts({"LocalSecondaryIndexes": [{"IndexName": "mine"}]}), "it has indexes (mine)"),
        (facts({"Replicas": [{"RegionName": "us-east-2"}]}), "it is replicated to us-east-2"),
        (facts({"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]}), "its keys are not pk and sk"),
        (facts(backups={"ContinuousBackupsDescription": {}}), "point-in-time recovery is off"),
        (facts(purge={"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}), "the time to live is off"),
        (
            facts(purge={"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": "until"}}),
            "the time to live is until",
        ),
        (facts(denied=("PutItem",)), "the credentials lack PutItem"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_with_a_table(wrong: doctor.TableFacts, told: str) -> None:
    assert list(doctor.wrong_with(facts(), "everturn")) == []
    (found,) = doctor.wrong_with(wrong, "everturn")
    assert found[0] == told


def test_what_is_not_known_is_no_finding() -> None:
    assert list(doctor.wrong_with(doctor.TableFacts(), "everturn")) == []


def test_permissions_that_are_denied_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "everturn")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "stand-in")
    described = answer(200, {"Table": {**ABOUT, "TableName": "everturn"}})
    with scripted(described, error("AccessDeniedException")) as server:
        client = DynamoDBClient(TableAddress("everturn", "us-east-1", f"http://{server.address}", 1), blocking=True)
        found = drive(doctor.examine(Table(client, ""), time.monotonic() + 20))
        drive(client.close())
    names = "DescribeContinuousBackups, DescribeTimeToLive, Query, BatchGetItem, Scan, BatchWriteItem, "
    names += "PutItem, DeleteItem, UpdateItem"
    assert ("permissions", f"lacking: {names}") in found.facts
    assert [finding.what for finding in found.findings] == [f"the credentials lack {names}"]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["everturn", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_init_creates_the_table_and_doctor_examines_it(
    bare_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "doctor", bare_url) == 2
    assert "there is no such table" in capsys.readouterr().err
    for _ in range(2):  # the second time it is there
        assert run(monkeypatch, "init", bare_url) == 0
        assert capsys.readouterr().out.startswith("ready: dynamodb://everturn-")
    assert run(monkeypatch, "doctor", bare_url) == 1
    told = capsys.readouterr().out
    for fact in ("on demand", "none (none is needed)", "purge_at", "all that everturn needs", "deletion protection is"):
        assert fact in told
    with everturn.open(bare_url) as store:
        store.save_context("a", "Hello", "Hi")


def test_the_table_of_cloudformation_is_the_one_that_init_makes() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (resource,) = yaml.safe_load(text)["Resources"].values()
    made = resource["Properties"]
    assert {name: made[name] for name in definition("everturn")} == definition("everturn")
    assert made["TimeToLiveSpecification"] == {"AttributeName": PURGE, "Enabled": True}
    assert made["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert made["DeletionProtectionEnabled"] is True


def test_so_is_the_one_of_terraform() -> None:
    (text,) = re.findall(r"```hcl\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    told = dict(re.findall(r"^  (\w+) += (.*)$", text, re.MULTILINE))
    keys = {key["KeyType"]: key["AttributeName"] for key in definition("everturn")["KeySchema"]}
    assert (told["hash_key"], told["range_key"]) == (f'"{keys["HASH"]}"', f'"{keys["RANGE"]}"')
    assert told["billing_mode"] == f'"{definition("everturn")["BillingMode"]}"'
    attributes = re.findall(r'attribute \{\s+name = "(\w+)"\s+type = "(\w)"', text)
    expected = definition("everturn")["AttributeDefinitions"]
    assert attributes == [(each["AttributeName"], each["AttributeType"]) for each in expected]
    assert re.search(rf'ttl \{{\s+attribute_name = "{PURGE}"\s+enabled += true', text)
