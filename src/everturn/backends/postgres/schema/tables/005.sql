-- Version 5: turns that name a lease are tried without a look, too; a replace keeps summaries that stand for hidden entries; the keys
-- of effects are linked.

-- Token of the lease as its holder last named it; NULL once it was released, or where none was named. Whoever takes or releases the lease
-- writes here: so a turn that waits for this row meanwhile sees that its own token is no longer there.
-- Beside the row in `leases`, which says until when it holds, and not instead of it: seals do not cover this column.
ALTER TABLE everturn.sessions ADD COLUMN lease bigint;

-- How many of the bodies of a replace, the first of them, are copies of summaries: a turn of their own, which `entries` does not count.
-- -1: refuse a replace that drops a summary while entries stay hidden. NULL: neither, as workers of version 4 send it.
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE carried integer;

-- The keys of a session's effects in their order, each with the one after it; the last with the first. A link shows that no key
-- between the two was begun, so a lost effect is told from a new one by one row, however many there are.
CREATE TABLE everturn.effect_keys (
    session  bigint NOT NULL,
    key      text   COLLATE "C" NOT NULL,
    next_key text   COLLATE "C" NOT NULL,
    seal     bytea  NOT NULL,              -- effect_key_seal_v5
    PRIMARY KEY (session, key)
);
