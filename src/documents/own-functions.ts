/** The sandbox of hosted mode: it runs settee's own functions, and refuses any other before a thread is asked for one. */
import { CouchError } from '../core/errors.ts'
import type { Sandbox, UserFunction } from '../sandbox/sandbox.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from './auth-design.ts'
import { spliceDocument } from './body.ts'
import { mayBeOwnDesign } from './hosted.ts'

/**
 * @param sandbox runs what may run
 * @param database the name of the database whose functions are asked for
 * @returns a sandbox that rejects with hosted_function for all functions but those of settee's own design document
 */
export function ownFunctionsOnly(sandbox: Sandbox, database: string): Sandbox {
  const check = (fn: UserFunction): void => {
    if (!isOwn(fn, database)) throw new CouchError('hosted_function')
  }
  return {
    compile: async (fn) => {
      check(fn)
      return sandbox.compile(fn)
    },
    filter: async (fn, docs, req) => {
      check(fn)
      return sandbox.filter(fn, docs, req)
    },
    map: async (fn, docs) => {
      check(fn)
      return sandbox.map(fn, docs)
    },
    reduce: async (fn, calls) => {
      check(fn)
      return sandbox.reduce(fn, calls)
    },
    validate: async (fn, calls) => {
      check(fn)
      return sandbox.validate(fn, calls)
    },
  }
}

function isOwn({ ddoc, rev, source }: UserFunction, database: string): boolean {
  if (!mayBeOwnDesign(database, ddoc)) return false
  return source === spliceDocument({ id: AUTH_DESIGN_ID, rev, body: AUTH_DESIGN_BODY })
}
