/**
 * How a route file states its routes: a list of paths, each with its methods, who may call them, and the text of
 * `Allow` for all the others (protocol.md 1.5). The 405 answers are made here, once, for every path.
 */
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { CouchError, type ErrorName } from '../core/errors.ts'
import { requireJsonType } from './request-params.ts'
import type { Handler } from './services.ts'

/**
 * Who may call a route (protocol.md 11.4); `user` is anybody who has logged in, `maintainer` an admin of the
 * database whose lack is answered with 401 (protocol.md 19.7), `metrics` a server admin or who has the role `_metrics`.
 * `tenant` is a server admin, and in hosted mode any account; `owner` a server admin, and in hosted mode the account
 * that owns the database; `db admin or owner` whoever is one of these.
 */
export type Access =
  | 'public'
  | 'user'
  | 'member'
  | 'db admin'
  | 'maintainer'
  | 'tenant'
  | 'owner'
  | 'db admin or owner'
  | 'metrics'
  | 'server admin'

interface Method {
  readonly handler: Handler
  /** When it is not the path's. */
  readonly access?: Access
  /** The call demands `Content-Type: application/json` (protocol.md 1.3). */
  readonly json?: true
  /** The shape of the query's parameters; absent: read as they come, as CouchDB does with most. */
  readonly query?: Schema
  /** false: the answer goes out as it is stored, with its length and its digest. */
  readonly compress?: false
  /**
   * `ignored`: the call answers whoever asks, and looks at no credentials. `optional`: it does so for who brings none
   * also with `chttpd/require_valid_user`.
   */
  readonly credentials?: 'ignored' | 'optional'
  /** With `ignored`: whether this one call looks at them all the same. */
  heeds?(request: FastifyRequest): boolean
  /** The reason of a 401 for wrong credentials, when it is not CouchDB's. */
  readonly wrongCredentials?: string
}

export interface Path {
  readonly url: string
  /** The text of `Allow`. */
  readonly allow: string
  /** The rule of the path, and so of the 405 answers on it. */
  readonly access: Access
  /** What the rule `user` tells who has not logged in, when it is not the rule's own text. */
  readonly stranger?: ErrorName
  readonly methods: Readonly<Partial<Record<MethodName, Method>>>
}

type MethodName = 'GET' | 'POST' | 'PUT' | 'DELETE' | 'COPY'

declare module 'fastify' {
  interface FastifyInstance {
    /** Every path that is registered: for tests that must miss none. */
    paths: Path[]
  }
  interface FastifyContextConfig {
    access?: Access
    credentials?: 'ignored' | 'optional'
    heeds?: Method['heeds']
    stranger?: ErrorName
    wrongCredentials?: string
  }
}

/** All that Fastify routes here; any other method ends in {@link refuseUnknownMethod}. */
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'COPY', 'PATCH', 'OPTIONS', 'TRACE'] as const

/** Registers the paths: their methods, HEAD for each GET (Fastify does that), and 405 for the rest. */
export function registerPaths(app: FastifyInstance, paths: readonly Path[]): void {
  app.paths.push(...paths)
  for (const path of paths) {
    for (const [name, method] of Object.entries(path.methods)) registerMethod(app, path, name, method)
    registerRefusals(app, path)
  }
}

function registerMethod(app: FastifyInstance, path: Path, name: string, method: Method): void {
  const { credentials, heeds, wrongCredentials } = method
  app.route({
    method: name,
    url: path.url,
    config: {
      access: method.access ?? path.access,
      ...(path.stranger && { stranger: path.stranger }),
      ...(credentials && { credentials }),
      ...(heeds && { heeds }),
      ...(wrongCredentials && { wrongCredentials }),
    },
    ...(method.compress === false && { compress: false }),
    ...(method.query && { schema: { querystring: method.query } }),
    ...(method.json && { preHandler: requireJsonType }),
    handler: method.handler,
  })
}

function registerRefusals(app: FastifyInstance, path: Path): void {
  const known = new Set(Object.keys(path.methods))
  if (known.has('GET')) known.add('HEAD')
  app.route({
    method: METHODS.filter((method) => !known.has(method)),
    url: path.url,
    exposeHeadRoute: false,
    config: { access: path.access, ...(path.stranger && { stranger: path.stranger }) },
    handler: async (_request, reply) => refuseMethod(reply, path.allow),
  })
}

/** The answer to methods that no path knows, like PROPFIND: every path of CouchDB's matches some route of ours. */
export async function refuseUnknownMethod(_request: FastifyRequest, reply: FastifyReply): Promise<never> {
  return refuseMethod(reply, 'COPY,DELETE,GET,HEAD,POST,PUT')
}

function refuseMethod(reply: FastifyReply, allow: string): never {
  reply.header('Allow', allow)
  throw new CouchError('method_not_allowed', `Only ${allow} allowed`)
}

// Checks of the request shapes that are ours: query parameters and small bodies. Documents never pass through
// here. Nothing is coerced, removed or filled in: what is not in its shape is refused, and changes nothing.

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

/** `true` or `false` in any case, as the parameters of views and their kin. */
export const VIEW_BOOLEAN: Schema = {
  type: 'string',
  pattern: '^(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$',
  refusal: ['query_parse_error', 'Invalid boolean parameter: "%"'],
}

/** A whole number that is not negative, as `limit` and `skip`. */
export const COUNT: Schema = {
  allOf: [
    {
      type: 'string',
      pattern: '^-?[0-9]+$',
      refusal: ['query_parse_error', 'Invalid value for integer: "%"'],
    },
    {
      type: 'string',
      pattern: '^[0-9]',
      refusal: ['query_parse_error', 'Invalid value for positive integer: "%"'],
    },
  ],
}

/** A row of the error table, and a reason in which `%` stands for the value. */
type Refusal = readonly [code: ErrorName, reason: string]

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

// The name of the one node there is; protocol.md 12.1, 15.

/** Names by which clients and guides call a node that is in no cluster, whatever its own name is. */
const ALIASES = ['_local', 'nonode@nohost', 'couchdb@127.0.0.1']

/** @returns the name that the node tells: `settee/node_name`, which `NODENAME` sets as in CouchDB's image */
export function nodeName(config: Config): string {
  return config.get('settee', 'node_name') || 'nonode@nohost'
}

/** @throws no_such_node */
export function checkNodeName(config: Config, name: string): void {
  if (name === nodeName(config) || ALIASES.includes(name)) return
  throw new CouchError('no_such_node', `no such node: ${name}`)
}
