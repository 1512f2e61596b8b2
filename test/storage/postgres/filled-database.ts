/** A database whose tables a test fills by SQL, so that reads are tested without the write path. */
import type { Test } from 'tap'
import { encodeAncestry } from '../../../src/revisions/branch.ts'
import { DamageReports } from '../../../src/storage/damage.ts'
import type { StoredAttachment } from '../../../src/storage/engine.ts'
import { Connections } from '../../../src/storage/postgres/connections.ts'
import { DatabaseViews, type SettingsRow } from '../../../src/storage/postgres/database-view.ts'
import { NotedLeaves } from '../../../src/storage/postgres/noted-leaves.ts'
import { DamagedRows, type OpenDatabase } from '../../../src/storage/postgres/open-database.ts'
import { FUNCTIONS, MIGRATIONS } from '../../../src/storage/postgres/schema.ts'
import { storedText } from '../../../src/storage/postgres/stored-text.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import type { PostgresServer } from '../../helpers/postgres-server.ts'

export const DB = 7
/** Of the database. */
export const SETTINGS: SettingsRow = [0, 0, 1000, 1000, false, '[{"id":"e","firstSeq":0}]', null, null, null]

export interface FilledRevision {
  readonly rev: string
  readonly deleted?: boolean
  readonly body?: string
  readonly attachments?: readonly StoredAttachment[]
  /** null: superseded. */
  readonly ancestry?: readonly string[] | null
  readonly retained?: boolean
  readonly storedAt?: number
  readonly supersededAt?: number
}

export interface Filled {
  readonly database: OpenDatabase
  /** Stores a document under the next sequence number, in one transaction. The first revision is the winner. */
  put(id: string, ...revisions: FilledRevision[]): Promise<void>
  sql(text: string, values?: readonly unknown[]): Promise<Record<string, unknown>[]>
}

export async function openFilled(t: Test, server: PostgresServer): Promise<Filled> {
  const url = await server.createDatabase()
  const name = new URL(url).pathname.slice(1)
  const sql: Filled['sql'] = (text, values = []) =>
    server.query(text, values, name) as Promise<Record<string, unknown>[]>
  await sql('CREATE SCHEMA settee AUTHORIZATION settee; ALTER ROLE settee SET search_path = settee')
  await sql(`SET ROLE settee; SET search_path = settee; ${MIGRATIONS.join('')} ${FUNCTIONS}`)
  await sql(
    'INSERT INTO settee.database (db, incarnation, created_at, partitioned, timeline, epochs) VALUES ($1, $1, 0, false, $2, $3)',
    [DB, 'one', '[{"id":"e","firstSeq":0}]'],
  )
  const connections = new Connections({ address: await readStoreAddress(url, null), size: 4 })
  t.teardown(() => connections.close())
  const damage = new DamageReports('notes', { report: () => undefined, areDevicesAsked: false })
  const views = new DatabaseViews(connections, [DB, DB], SETTINGS, damage)
  const database: OpenDatabase = {
    name: 'notes',
    db: DB,
    connections,
    views,
    damage,
    rows: new DamagedRows(),
    leaves: new NotedLeaves({ connections, views, now: Date.now }),
    opener: 'test',
    now: Date.now,
  }
  const put: Filled['put'] = async (id, ...revisions) => {
    const [winner, ...others] = revisions as [FilledRevision, ...FilledRevision[]]
    const leaves = others.filter(({ ancestry }) => ancestry != null).length + 1
    await connections.transaction(async (run) => {
      const [row] = await run<readonly [number, number]>({
        name: 'fill_database',
        text:
          'UPDATE database SET update_seq = update_seq + 1, writes = writes + 1, doc_count = doc_count + $2, ' +
          'deleted_count = deleted_count + $3 WHERE db = $1 RETURNING update_seq, writes',
        values: [DB, winner.deleted ? 0 : 1, winner.deleted ? 1 : 0],
      })
      const [seq, version] = row as readonly [number, number]
      await run({
        name: 'fill_doc',
        text:
          'INSERT INTO doc (db, id, seq, version, first_seq, rev, deleted, leaves, place, stored_at, size, attachments, ancestry, body) ' +
          'VALUES ($1, $2, $3, $4, $3, $5, $6, $7, $8, $9, $10, $11, $12, $13)',
        values: [
          ...[DB, storedText(id), seq, version, winner.rev, winner.deleted === true, leaves],
          ...[version * 65536, winner.storedAt ?? null, Buffer.byteLength(winner.body ?? '{}')],
          ...[winner.attachments ? JSON.stringify(winner.attachments) : null, ancestryOf(winner)],
          storedText(winner.body ?? '{}'),
        ],
      })
      for (const [n, revision] of others.entries()) {
        const isLeaf = revision.ancestry != null
        await run({
          name: 'fill_revision',
          text:
            'INSERT INTO revision (db, id, rev, deleted, leaf, retained, place, stored_at, superseded_at, size, attachments, ancestry, body) ' +
            'VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)',
          values: [
            ...[
              DB,
              storedText(id),
              revision.rev,
              revision.deleted === true,
              isLeaf,
              revision.retained === true,
            ],
            ...[
              version * 65536 - n - 1,
              revision.storedAt ?? null,
              isLeaf ? null : (revision.supersededAt ?? 1),
            ],
            Buffer.byteLength(revision.body ?? '{}'),
            revision.attachments ? JSON.stringify(revision.attachments) : null,
            isLeaf ? ancestryOf(revision) : null,
            storedText(revision.body ?? '{}'),
          ],
        })
      }
    })
  }
  return { database, put, sql }
}

function ancestryOf({ rev, ancestry }: FilledRevision): Uint8Array {
  return encodeAncestry(ancestry ?? [rev.slice(rev.indexOf('-') + 1)])
}
