/** A database with views, on the memory engine. */
import { Buffer } from 'node:buffer'
import type { UserCtx } from '../../src/core/types.ts'
import type { Body } from '../../src/documents/database.ts'
import { ViewMemory } from '../../src/query/view-index.ts'
import { type Parameters, storeViews, type ViewSource } from '../../src/query/views.ts'
import type { Sandbox } from '../../src/sandbox/messages.ts'
import { ADMIN, type Json, type Opened, openDatabase } from '../documents/helpers.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'

export interface WithViews extends Opened {
  readonly views: ViewSource
  /** The documents that a map function was called with. */
  readonly mapped: string[]
  /** The answer of `_design/d/_view/<name>`. */
  query(name: string, parameters?: Record<string, unknown>, body?: unknown, user?: UserCtx): Promise<Json>
}

export async function openViews(maxBytes = 10_000_000): Promise<WithViews> {
  const opened = await openDatabase()
  const { store } = opened
  const real = localSandbox()
  const mapped: string[] = []
  const sandbox: Sandbox = {
    ...real,
    map: (fn, docs) => {
      for (const doc of docs) mapped.push(JSON.parse(doc)._id)
      return real.map(fn, docs)
    },
  }
  const memory = new ViewMemory(() => maxBytes)
  const views = storeViews({ store, sandbox, incarnation: 1, memory })
  const query: WithViews['query'] = async (name, parameters = {}, body, user = ADMIN) => {
    const request = body === undefined ? null : bodyOf(body)
    return JSON.parse(await textOf(views.view(user, '_design/d', name, texts(parameters), request)))
  }
  return { ...opened, views, mapped, query }
}

const JSON_VALUED = new Set(['key', 'keys', 'startkey', 'endkey', 'start_key', 'end_key'])

/** Query parameters as text, as in an address. */
function texts(parameters: Record<string, unknown>): Parameters {
  return Object.entries(parameters).map(([name, value]) => [
    name,
    JSON_VALUED.has(name) ? JSON.stringify(value) : String(value),
  ])
}

export function bodyOf(value: unknown): Body {
  return { bytes: Buffer.from(JSON.stringify(value)) }
}

export async function textOf(chunks: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = []
  for await (const chunk of chunks) parts.push(chunk)
  return Buffer.concat(parts).toString()
}
