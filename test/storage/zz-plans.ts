import t from 'tap'
import pg from 'pg'
import { postgresEngine } from '../../src/storage/postgres/postgres-engine.ts'
import { readStoreAddress } from '../../src/storage/store-address.ts'
import { startPostgres } from '../helpers/postgres-server.ts'
const server = await startPostgres(t, { settings: { autovacuum: 'off' } })
const url = await server.createDatabase()
const engine = postgresEngine({ address: await readStoreAddress(url, null), poolSize: 4 })
await engine.openCatalog()
await engine.close()
const c = new pg.Client(url)
await c.connect()
await c.query(`SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SET plan_cache_mode = force_generic_plan; SET search_path = settee`)
const q: Record<string, string> = {
 records: 'PREPARE p AS SELECT key, value FROM record WHERE kind = $1 AND key = ANY($2::text[]); EXPLAIN EXECUTE p(\'k\', \'{a,b}\')',
 listrec: 'PREPARE p AS SELECT key, value FROM record WHERE kind = $1 AND key >= $2 ORDER BY key LIMIT $3; EXPLAIN EXECUTE p(\'k\', \'a\', 5)',
 positions: "PREPARE p AS SELECT db, update_seq, settings_version FROM database WHERE db = ANY($1::bigint[]); EXPLAIN EXECUTE p('{1,2}')",
 names: "PREPARE p AS SELECT name FROM entry WHERE name >= $1 AND name < $2 ORDER BY name ASC LIMIT $3; EXPLAIN EXECUTE p('a','b',3)",
 updates: "PREPARE p AS SELECT s.update_seq, s.epochs, u.seq, u.name, u.type FROM store s LEFT JOIN (SELECT seq, name, type FROM catalog_update WHERE seq > $1 AND seq < $2 ORDER BY 1 ASC LIMIT $3) u ON true ORDER BY u.seq ASC; EXPLAIN EXECUTE p(1,2,3)",
 updatesof: `PREPARE p AS SELECT s.update_seq, s.epochs, u.seq, u.name, u.type FROM store s LEFT JOIN (SELECT event.seq, event.name, event.type FROM unnest($4::text[]) AS wanted (name)
  CROSS JOIN LATERAL (
    SELECT u.seq FROM catalog_update u WHERE u.name = wanted.name AND u.type = 'created' OFFSET 0) AS creation
  CROSS JOIN LATERAL (
    SELECT u.seq, u.name, u.type FROM catalog_update u WHERE u.name = wanted.name OFFSET 0) AS event
  WHERE event.seq >= creation.seq AND event.seq > $1 AND event.seq < $2 ORDER BY 1 ASC LIMIT $3) u ON true ORDER BY u.seq ASC; EXPLAIN EXECUTE p(1,2,3,'{a,b}')`,
 note: "PREPARE p AS SELECT array_agg(e.name ORDER BY n.place) FROM unnest($1::text[]) WITH ORDINALITY n (name, place) JOIN entry e ON e.name = n.name; EXPLAIN EXECUTE p('{a,b}')",
 marks: "PREPARE p AS UPDATE entry e SET last_epoch = m.epoch, last_seq = m.seq FROM unnest($1::text[], $2::text[], $3::bigint[]) m (name, epoch, seq) WHERE e.name = m.name; EXPLAIN EXECUTE p('{a,b}','{a,b}','{1,2}')",
 changes: `PREPARE p AS SELECT c.changes FROM store LEFT JOIN (SELECT changes FROM catalog_change WHERE xid >= pg_snapshot_xmin($1::pg_snapshot)
      AND NOT pg_visible_in_snapshot(xid, $1::pg_snapshot) AND node <> $2 AND changes IS NOT NULL LIMIT 5001) c ON true; EXPLAIN EXECUTE p('5:5:','b')`,
 sweep: "PREPARE p AS DELETE FROM catalog_change WHERE token IN (SELECT token FROM catalog_change WHERE xid < $1::xid8 ORDER BY xid LIMIT 5000 FOR UPDATE SKIP LOCKED) RETURNING 1; EXPLAIN EXECUTE p('5')",
 remove: "PREPARE p AS DELETE FROM chunk WHERE db = $1 AND ctid = ANY(ARRAY(SELECT ctid FROM chunk WHERE db = $1 LIMIT $2)) RETURNING 1; EXPLAIN EXECUTE p(1, 5)",
}
for (const [name, text] of Object.entries(q)) {
  if (name === 'remove') await c.query('SET cpu_index_tuple_cost = 1000000')
  const [prepare, explain] = text.split('; EXPLAIN')
  await c.query(prepare!)
  const { rows } = await c.query(`EXPLAIN (COSTS OFF) ${explain}`)
  console.log(name + '\n' + rows.map((r) => '   ' + r['QUERY PLAN']).join('\n'))
  await c.query('DEALLOCATE p')
}
await c.end(); process.exit(0)
