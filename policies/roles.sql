-- Roles for a ledger on PostgreSQL: who runs campaigns may look and append, and nothing else.
--
-- 1. As the owner of an empty database, `SEEDBED_DATABASE_URL=... seedbed doctor` makes the schema.
-- 2. As the owner, run this file; again after each migration:  psql DATABASE -f policies/roles.sql
-- 3. Give `seedbed_app` a way to log in, and the campaigns' SEEDBED_DATABASE_URL that role.
-- 4. `ALTER ROLE owner NOLOGIN`: until the next migration nobody needs it.
--
-- It works on the schema that is first on the search path. Of the triggers only the owner can dispose,
-- and past them only a superuser can write; what either does is found by `seedbed verify`.

DO $$
DECLARE
  place text := quote_ident(current_schema());
BEGIN
  BEGIN
    CREATE ROLE seedbed_app NOINHERIT;
  EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL; -- another database of this server has it already
  END;
  EXECUTE format('REVOKE ALL ON SCHEMA %s FROM PUBLIC', place);
  EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %s FROM PUBLIC, seedbed_app', place);
  EXECUTE format('GRANT USAGE ON SCHEMA %s TO seedbed_app', place);
  EXECUTE format('GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA %s TO seedbed_app', place);
  EXECUTE format('REVOKE INSERT ON %s.alembic_version FROM seedbed_app', place);
  EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %s TO seedbed_app', place);
  -- What is mutable: a lease changes hands, and what waits to be published was published.
  EXECUTE format('GRANT UPDATE, DELETE ON %s.lease TO seedbed_app', place);
  EXECUTE format('GRANT UPDATE (published_at) ON %s.outbox TO seedbed_app', place);
END
$$;
