/** Tries the filter of phones on documents, in the sandbox in which settee runs strangers' functions. */
import { FunctionContext } from '../sandbox/function-context.ts'
import { type Client, codeOf, databasePath, isAnswer, type Reply } from './doctor-client.ts'
import type { MobileFacts, Trial } from './vault-checks.ts'

const LIMITS = { timeoutMs: 1000, memory: 33_554_432 }
const STACK = 262_144

/** What note apps have, a tombstone among them; and what must be left out. */
const PASS = [{ _id: 'note:1' }, { _id: 'book:1' }, { _id: 'tag:1' }, { _id: 'note:2', _deleted: true }]
const STAY = [{ _id: 'file:1' }, { _id: 'file:2', contentType: 'image/png' }]

export async function lookAtMobile(client: Client): Promise<MobileFacts> {
  const path = databasePath(client.address)
  const [document, changes] = await Promise.all([
    client.ask({ method: 'GET', path: `${path}/_design/mobile` }),
    client.ask({ method: 'GET', path: `${path}/_changes?filter=mobile%2Fsync&limit=1` }),
  ])
  return { document, changes, trial: hasFilter(document) ? await tryFilter(document.text) : null }
}

function hasFilter(document: Reply): document is Extract<Reply, { text: string }> {
  if (!isAnswer(document) || document.status !== 200) return false
  const { filters } = (document.json ?? {}) as { readonly filters?: { readonly sync?: unknown } }
  return typeof filters?.sync === 'string'
}

/** @param source the design document's JSON text */
async function tryFilter(source: string): Promise<Trial> {
  const fn = { database: 0, ddoc: '_design/mobile', rev: '', path: ['filters', 'sync'], source }
  try {
    const context = await FunctionContext.make(fn, LIMITS, STACK)
    context.share(JSON.stringify({ query: {}, method: 'GET' }))
    const passes = ({ _id, ...rest }: { readonly _id: string }) =>
      context.call('filter', JSON.stringify({ _id, _rev: '1-0', ...rest })) === 'true'
    const idOf = ({ _id }: { readonly _id: string }) => _id
    return {
      lost: PASS.filter((doc) => !passes(doc)).map(idOf),
      passed: STAY.filter((doc) => passes(doc)).map(idOf),
    }
  } catch (error) {
    const { reason } = error as { readonly reason?: unknown }
    return { failure: typeof reason === 'string' ? reason : codeOf(error) }
  }
}
