/** A database over PostgreSQL behind a network that a test cuts. */
import type { Test } from 'tap'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { cuttableNetwork } from '../../helpers/cuttable-network.ts'
import type { PostgresServer } from '../../helpers/postgres-server.ts'
import { until } from '../../helpers/until.ts'

/** Opens it, with `before`: what a test does before the next statement of a name, or the next of any, `*`. */
export async function openCuttable(t: Test, primary: PostgresServer) {
  const url = new URL(await primary.createDatabase())
  const name = url.pathname.slice(1)
  const network = await cuttableNetwork(t, primary.port)
  url.port = String(network.port)
  const before = new Map<string, () => void>()
  const operations: string[] = []
  const engine = postgresEngine({
    address: await readStoreAddress(url.href, null),
    poolSize: 6,
    onOperation: (operation) => {
      operations.push(operation)
      const name = before.has(operation) ? operation : '*'
      const act = before.get(name)
      before.delete(name)
      act?.()
    },
  })
  t.teardown(() => engine.close())
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  const store = await engine.openDatabase('notes')
  const sql = (text: string) => primary.query(text, [], name)
  const stored = async () => {
    const [row] = await sql('SELECT writes::int AS writes FROM settee.database')
    return row?.writes as number
  }
  /** Withholds the answer to the next statement of a name, and when it was carried out, cuts the connection or acts otherwise. */
  const lose = async (
    operation: string,
    isStored: () => Promise<boolean>,
    act: () => void = () => network.mend(),
  ) => {
    const isSent = Promise.withResolvers<void>()
    before.set(operation, () => {
      network.withholdAnswers()
      isSent.resolve()
    })
    await isSent.promise
    await until(isStored)
    act()
  }
  return { engine, store, network, before, operations, sql, stored, lose }
}

/** An error message of PostgreSQL's protocol. @param severity in the language of the server */
export function errorMessage(severity: string, code: string): Buffer {
  const fields = Buffer.from(`S${severity}\0C${code}\0Mit says so\0\0`)
  const head = Buffer.from('E....')
  head.writeUInt32BE(fields.length + 4, 1)
  return Buffer.concat([head, fields])
}
