/**
 * A database that is deleted and made again, each time through another node: no node takes it for the one before. A node that
 * does not know yet answers 503, and the client asks again.
 */
import t from 'tap'
import { startNodes } from '../../helpers/node-processes.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'

const ROUNDS = 40

t.test('a database that another node has made again', async (t) => {
  const postgres = await startPostgres(t)
  const nodes = await startNodes(t, 2, { args: ['--store', await postgres.createDatabase()] })
  let turn = 0
  let waited = 0
  const ask = async (method: string, path: string): Promise<number> => {
    for (;;) {
      const url = nodes[turn++ % nodes.length]?.url
      const { status } = await fetch(`${url}${path}`, { method, ...(method === 'PUT' && { body: '{}' }) })
      if (status !== 503) return status
      waited += 1
    }
  }
  const wrong: string[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const statuses = [
      await ask('PUT', '/notes'),
      await ask('PUT', '/notes/a'),
      await ask('GET', '/notes/a'),
      await ask('DELETE', '/notes'),
      await ask('GET', '/notes'),
    ].join()
    if (statuses !== '201,201,200,200,404') wrong.push(statuses)
    // So that the next one is made by the other node.
    turn += round % 2
  }
  t.same(wrong, [])
  t.comment(`${waited} answers were 503`)
})
