/** A sandbox that records its calls, with a hook that runs before it answers. */
import type { Sandbox, UserFunction, ValidateCall } from '../../src/sandbox/messages.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { type Opened, openDatabase } from './helpers.ts'

export interface Asked {
  readonly fn: UserFunction
  readonly calls: readonly ValidateCall[]
}

export interface HookedSandbox extends Sandbox {
  /** The calls of `validate`, in order. */
  readonly asked: Asked[]
  /** The paths that were compiled. */
  readonly compiled: string[]
  /** Awaited before each answer of `validate`; if it throws, the error is the answer. */
  beforeAnswer: (asked: Asked) => Promise<void> | void
}

export function hookedSandbox(): HookedSandbox {
  const inner = localSandbox()
  const sandbox: HookedSandbox = {
    asked: [],
    compiled: [],
    beforeAnswer: () => {},
    compile: (fn) => {
      sandbox.compiled.push(fn.path.join('.'))
      return inner.compile(fn)
    },
    filter: (fn, docs, req) => inner.filter(fn, docs, req),
    map: (fn, docs) => inner.map(fn, docs),
    mapViews: (maps, docs) => inner.mapViews(maps, docs),
    reduce: (fn, calls) => inner.reduce(fn, calls),
    validate: async (fn, calls) => {
      sandbox.asked.push({ fn, calls })
      await sandbox.beforeAnswer({ fn, calls })
      return inner.validate(fn, calls)
    },
    render: (kind, fn, args) => inner.render(kind, fn, args),
    list: (fn, args, exchange) => inner.list(fn, args, exchange),
  }
  return sandbox
}

export interface Validating extends Opened {
  readonly sandbox: HookedSandbox
  /** Stores a design document with this validate function, replacing the stored one. */
  validate(fn: string, name?: string): Promise<string>
  /** The arguments of the first call of the last validate function, parsed. */
  lastCall(): { newDoc: unknown; oldDoc: unknown; userCtx: unknown; security: unknown }
}

/** An empty database whose validate functions can be watched. */
export async function openValidating(): Promise<Validating> {
  const sandbox = hookedSandbox()
  const opened = await openDatabase({}, {}, sandbox)
  return {
    ...opened,
    sandbox,
    validate: async (fn, name = 'check') => {
      const id = `_design/${name}`
      const old = await opened.get(id).catch(() => null)
      return opened.put(id, { ...(old && { _rev: old._rev }), validate_doc_update: fn })
    },
    lastCall: () => {
      const call = sandbox.asked.at(-1)?.calls[0]
      if (call === undefined) throw new Error('no validate function was called')
      const { newDoc, oldDoc, userCtx, security } = call
      return {
        newDoc: JSON.parse(newDoc),
        oldDoc: JSON.parse(oldDoc),
        userCtx: JSON.parse(userCtx),
        security: JSON.parse(security),
      }
    },
  }
}
