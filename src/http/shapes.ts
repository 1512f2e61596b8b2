/**
 * Checks of the request shapes that are ours: query parameters and small bodies. Documents never pass through
 * here. Nothing is coerced, removed or filled in: what is not in its shape is refused, and changes nothing.
 */
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv'
import { CouchError, type ErrorName } from '../core/errors.ts'

/** A JSON schema. `refusal` says what the client is told when the part it stands in is not met. */
export interface Schema {
  readonly type?: string
  readonly pattern?: string
  readonly minLength?: number
  readonly maxItems?: number
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly items?: Schema
  readonly allOf?: readonly Schema[]
  readonly refusal?: Refusal
}

/** A row of the error table, and a reason in which `%` stands for the value. */
export type Refusal = readonly [code: ErrorName, reason: string]

const ajv = new Ajv({
  coerceTypes: false,
  removeAdditional: false,
  useDefaults: false,
  verbose: true,
  // A part of a shape may stand by itself for the sake of its refusal; of that Ajv would print a warning.
  strictTypes: false,
  keywords: ['refusal'],
})

/**
 * A check of a shape, compiled when it is first made: all of them together would take a tenth of a second of every
 * start.
 * @returns a function that gives back what it was given, once it has the shape; it throws the refusal that stands
 *   nearest to the fault, or bad_request with the fault in words
 */
export function shape<T>(schema: Schema): (value: unknown) => T {
  let validate: ValidateFunction<T> | undefined
  return (value) => {
    validate ??= ajv.compile<T>(schema)
    if (validate(value)) return value
    throw refusal(validate.errors?.[0])
  }
}

/** The same for Fastify's route option `schema`. */
export function validatorCompiler({ schema }: { schema: unknown }): (value: unknown) => { error?: Error } {
  const check = shape<unknown>(schema as Schema)
  return (value) => {
    try {
      check(value)
      return {}
    } catch (error) {
      return { error: error as CouchError }
    }
  }
}

function refusal(fault: ErrorObject | undefined): CouchError {
  const said = fault?.parentSchema?.refusal as Refusal | undefined
  if (said === undefined) {
    const where = fault?.instancePath ? `${fault.instancePath.slice(1)} ` : ''
    return new CouchError('bad_request', `${where}${fault?.message ?? 'is not understood'}`)
  }
  return new CouchError(
    said[0],
    said[1].replace('%', () => String(fault?.data)),
  )
}
