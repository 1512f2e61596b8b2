/** Functions of generated design documents. */
import type { UserFunction, ValidateCall, Verdict } from '../../src/sandbox/messages.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'

let revisions = 0

/** A function at a path of a design document with further members `others`. Each call makes a new revision. */
export function functionAt(
  path: readonly string[],
  text: unknown,
  others: Record<string, unknown> = {},
): UserFunction {
  revisions += 1
  const own = path.reduceRight<unknown>((value, name) => ({ [name]: value }), text) as object
  return {
    database: 1,
    ddoc: '_design/x',
    rev: `1-${revisions}`,
    path,
    source: JSON.stringify({ ...others, ...own }),
  }
}

export const filterOf = (text: unknown, others?: Record<string, unknown>) =>
  functionAt(['filters', 'f'], text, others)
export const mapOf = (text: unknown, others?: Record<string, unknown>) =>
  functionAt(['views', 'v', 'map'], text, others)
export const reduceOf = (text: unknown) => functionAt(['views', 'v', 'reduce'], text)
export const validatorOf = (text: unknown) => functionAt(['validate_doc_update'], text)

/** One sandbox for all tests of a file, since functions must not affect each other. */
const shared = localSandbox()

/** Whether each document passes. */
export function filter(text: string, docs: readonly unknown[], req: unknown = {}): Promise<boolean[]> {
  return shared.filter(
    filterOf(text),
    docs.map((doc) => JSON.stringify(doc)),
    JSON.stringify(req),
  )
}

/** The rows that a map function emits for each document. */
export async function map(text: string, docs: readonly unknown[]): Promise<unknown[]> {
  const rows = await shared.map(
    mapOf(text),
    docs.map((doc) => JSON.stringify(doc)),
  )
  return rows.map((row) => JSON.parse(row))
}

/** The verdict of a function with this body. */
export async function verdictOf(body: string, call: Partial<ValidateCall> = {}): Promise<Verdict> {
  const fn = validatorOf(`function (newDoc, oldDoc, userCtx, secObj) { ${body} }`)
  const whole = { newDoc: '{"_id":"a"}', oldDoc: 'null', userCtx: '{}', security: '{}', ...call }
  const [verdict = null] = await shared.validate(fn, [whole])
  return verdict
}

export { shared }
