/** `settee postgres check` and `settee postgres distribute`, on a real PostgreSQL. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Client } from 'pg'
import t from 'tap'
import { runPostgresCommand } from '../../../src/cli/postgres-command.ts'
import { distributionStatements, schemaOf } from '../../../src/storage/postgres/distribution.ts'
import { cleanEnv, settee } from '../../cli/child.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const PASSWORD = 'correct horse'
const server = await startPostgres(t, { password: PASSWORD })
const withoutPassword = (address: string) => address.replace(/:[^:/@]*@/, '@')

t.test('a check names what is fine and what is not, and nobody sees the password', async (t) => {
  const store = withoutPassword(await server.createDatabase())
  const folder = await temporaryFolder(t)
  const file = join(folder, 'password')
  await writeFile(file, `${PASSWORD}\n`)
  const env = cleanEnv({ SETTEE_STORE_PASSWORD_FILE: file, SETTEE_DATA: folder })
  const { code, stdout, stderr } = await settee(t, ['postgres', 'check', '--store', store, '--json'], { env })
    .ended
  t.equal(stderr, '')
  // The PostgreSQL of the tests syncs nothing.
  t.equal(code, 1)
  const { ok, findings, store: shown } = JSON.parse(stdout)
  t.equal(ok, false)
  t.equal(shown, store)
  t.match(
    Object.fromEntries(findings.map(({ name, state }: { name: string; state: string }) => [name, state])),
    {
      version: 'fine',
      durability: 'wrong',
      connections: 'fine',
      clock: 'fine',
      snapshots: 'fine',
    },
  )
  const lines = await settee(t, ['postgres', 'check'], { env: { ...env, SETTEE_STORE: store } }).ended
  t.match(lines.stdout, /^fine {3}version {6}PostgreSQL 1\d\..*$/m)
  t.match(
    lines.stdout,
    /^WRONG {2}durability {3}fsync is off.*ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf\(\);$/m,
  )
  t.notMatch(stdout + lines.stdout, PASSWORD)
})

t.test('what keeps a command from its work is one line on standard error', async (t) => {
  const store = withoutPassword(await server.createDatabase())
  const env = { SETTEE_DATA: await temporaryFolder(t) }
  const failure = async (name: 'check' | 'distribute', given: string | undefined, PGPASSWORD = '') => {
    const said = t.capture(console, 'error', () => undefined)
    process.env.PGPASSWORD = PGPASSWORD
    t.teardown(() => delete process.env.PGPASSWORD)
    const common = { store: given, data: undefined }
    const command = name === 'check' ? { ...common, name, json: false } : { ...common, name, shards: null }
    t.equal(await runPostgresCommand(command, env), 1)
    return String(said.args()[0]?.[0])
  }
  t.match(await failure('check', undefined), /^settee: No store is given: .*$/)
  t.match(await failure('check', store), /password/)
  t.equal(await failure('check', store, 'geheim'), 'settee: password authentication failed for user "settee"')
  const inside = await failure('check', store.replace('@', ':geheim@'))
  t.match(inside, /store_password_file/)
  t.notMatch(inside, 'geheim')
  t.match(
    await failure('distribute', store, PASSWORD),
    /^settee: This PostgreSQL is not distributed, since it does not have Citus.*CREATE EXTENSION citus/,
  )
})

t.test('the statements for Citus name tables and functions as PostgreSQL knows them', async (t) => {
  const client = new Client({ connectionString: await server.createDatabase() })
  await client.connect()
  t.teardown(() => client.end())
  await t.rejects(schemaOf(client), { message: /no tables of settee yet/ })
  // What Citus would get, noted by functions of the same names and arguments.
  await client.query(`CREATE TABLE noted (at serial, what text);
    CREATE FUNCTION create_distributed_table(t regclass, c text, colocate_with text, shard_count int = 32) RETURNS void
      LANGUAGE sql AS $$ INSERT INTO noted (what) VALUES (format('%s %s %s %s', t, c, colocate_with, shard_count)) $$;
    CREATE FUNCTION create_distributed_function(f regprocedure, a text = 'none', colocate_with text = 'none') RETURNS void
      LANGUAGE sql AS $$ INSERT INTO noted (what) VALUES (format('%s %s %s', f, a, colocate_with)) $$;
    CREATE SCHEMA settee;
    CREATE TABLE settee.store (one boolean);
    CREATE TABLE settee.database (db bigint PRIMARY KEY);
    CREATE TABLE settee.doc (db bigint, id text);
    CREATE FUNCTION settee.timeline() RETURNS text LANGUAGE sql AS $$ SELECT '' $$;
    CREATE FUNCTION settee.write_group(db bigint, ids text[]) RETURNS bigint LANGUAGE sql AS $$ SELECT 1::bigint $$`)
  const schema = await schemaOf(client)
  for (const statement of distributionStatements(schema, 64)) await client.query(statement)
  const { rows } = await client.query('SELECT what FROM noted ORDER BY at')
  t.same(
    rows.map(({ what }) => what),
    [
      'database db none 64',
      'doc db settee.database 32',
      'timeline() none none',
      'write_group(bigint,text[]) $1 settee.database',
    ],
  )
})
