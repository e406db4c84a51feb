-- Version 2: folds, and rollbacks to a version.

ALTER TYPE everturn.request_v1 ADD ATTRIBUTE to_version bigint;  -- rollback, where no snapshot is named
