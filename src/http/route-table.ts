/**
 * The format of routes: a list of paths, each with its methods, who may call them, and the text of `Allow` for all other
 * methods (protocol.md 1.5). The 405 answers of all paths are made here. So are checks of query parameters and small bodies.
 */
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { CouchError, type ErrorName } from '../core/errors.ts'
import { requireJsonType } from './request-params.ts'
import type { Handler } from './services.ts'

/**
 * Who may call a route (protocol.md 11.4). `user` is any logged-in user. `lister` is a member of the database, and a server
 * admin for the two databases that only they may list. `maintainer` is an admin of the database, and
 * others get 401 (protocol.md 19.7). `metrics` is a server admin or a user with the role `_metrics`. `tenant` is a server
 * admin and, in hosted mode, any account. `owner` is a server admin and, in hosted mode, the account that owns the database.
 * `db admin or owner` is either of the two.
 */
export type Access =
  | 'public'
  | 'user'
  | 'member'
  | 'lister'
  | 'db admin'
  | 'maintainer'
  | 'tenant'
  | 'owner'
  | 'db admin or owner'
  | 'metrics'
  | 'server admin'

interface Method {
  readonly handler: Handler
  /** Default: the rule of the path. */
  readonly access?: Access
  /** The call demands `Content-Type: application/json` (protocol.md 1.3). */
  readonly json?: true
  /** The schema of the query's parameters; absent: they are not checked here, as CouchDB does with most. */
  readonly query?: Schema
  /** false: the answer is sent as it is stored, with its length and its digest. */
  readonly compress?: false
  /**
   * `ignored`: credentials are not checked. `optional`: callers without credentials are served even with
   * `chttpd/require_valid_user`.
   */
  readonly credentials?: 'ignored' | 'optional'
  /** With `ignored`: whether this request's credentials are checked all the same. */
  checksCredentials?(request: FastifyRequest): boolean
  /** The reason of a 401 for wrong credentials, except in hosted mode, where any account may call. Default: CouchDB's. */
  readonly wrongCredentials?: string
}

export interface Path {
  readonly url: string
  /** The text of `Allow`. */
  readonly allow: string
  /** The rule of the path and of its 405 answers. */
  readonly access: Access
  /** The error for anonymous callers under the rule `user`. Default: the rule's own. */
  readonly anonymousError?: ErrorName
  readonly methods: Readonly<Partial<Record<MethodName, Method>>>
}

type MethodName = 'GET' | 'POST' | 'PUT' | 'DELETE' | 'COPY'

declare module 'fastify' {
  interface FastifyInstance {
    /** Every registered path, for tests that must cover all. */
    paths: Path[]
  }
  interface FastifyContextConfig {
    access?: Access
    credentials?: 'ignored' | 'optional'
    checksCredentials?: Method['checksCredentials']
    anonymousError?: ErrorName
    wrongCredentials?: string
  }
}

/** The methods that Fastify routes here; all others lead to {@link refuseUnknownMethod}. */
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'COPY', 'PATCH', 'OPTIONS', 'TRACE'] as const

/** Registers the paths: their methods, HEAD for each GET (by Fastify), and 405 for all others. */
export function registerPaths(app: FastifyInstance, paths: readonly Path[]): void {
  app.paths.push(...paths)
  for (const path of paths) {
    for (const [name, method] of Object.entries(path.methods)) registerMethod(app, path, name, method)
    registerRefusals(app, path)
  }
}

function registerMethod(app: FastifyInstance, path: Path, name: string, method: Method): void {
  const { credentials, checksCredentials, wrongCredentials } = method
  app.route({
    method: name,
    url: path.url,
    config: {
      access: method.access ?? path.access,
      ...(path.anonymousError && { anonymousError: path.anonymousError }),
      ...(credentials && { credentials }),
      ...(checksCredentials && { checksCredentials }),
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
    config: { access: path.access, ...(path.anonymousError && { anonymousError: path.anonymousError }) },
    handler: async (_request, reply) => refuseMethod(reply, path.allow),
  })
}

/** Answers methods that no path has, such as PROPFIND. Every path of CouchDB's matches a route here. */
export async function refuseUnknownMethod(_request: FastifyRequest, reply: FastifyReply): Promise<never> {
  return refuseMethod(reply, ALL_METHODS)
}

/** What some path has. */
export const ALL_METHODS = 'COPY,DELETE,GET,HEAD,POST,PUT'

function refuseMethod(reply: FastifyReply, allow: string): never {
  reply.header('Allow', allow)
  throw wrongMethod(allow)
}

export function wrongMethod(allow: string): CouchError {
  return new CouchError('method_not_allowed', `Only ${allow} allowed`)
}

/**
 * A JSON schema for query parameters and small bodies, not for documents. Values are not coerced, removed or filled in.
 * `refusal` is the error for values that do not match this part of the schema.
 */
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

/** `true` or `false` in any case, as in the parameters of views and lists. */
export const VIEW_BOOLEAN: Schema = {
  type: 'string',
  pattern: '^(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$',
  refusal: ['query_parse_error', 'Invalid boolean parameter: "%"'],
}

/** A whole number from 0, such as `limit` and `skip`. */
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

/** A row of the error table, and a reason in which `%` is replaced by the value. */
type Refusal = readonly [code: ErrorName, reason: string]

const ajv = new Ajv({
  coerceTypes: false,
  removeAdditional: false,
  useDefaults: false,
  verbose: true,
  // A schema may be split for its refusals, at which Ajv would print a warning.
  strictTypes: false,
  keywords: ['refusal'],
})

/**
 * Makes a check for a schema. The schema is compiled at its first use: compiling all would add 0.1 s to every start.
 * @returns a function that returns a matching value as it is; otherwise it throws the refusal nearest to the fault, or
 *   bad_request with a description
 */
export function shape<T>(schema: Schema): (value: unknown) => T {
  let validate: ValidateFunction<T> | undefined
  return (value) => {
    validate ??= ajv.compile<T>(schema)
    if (validate(value)) return value
    throw refusal(validate.errors?.[0])
  }
}

/** The same check for Fastify's route option `schema`. */
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
  const stated = fault?.parentSchema?.refusal as Refusal | undefined
  if (stated === undefined) {
    const where = fault?.instancePath ? `${fault.instancePath.slice(1)} ` : ''
    return new CouchError('bad_request', `${where}${fault?.message ?? 'is invalid'}`)
  }
  return new CouchError(
    stated[0],
    stated[1].replace(/"%"|%/, (mark) => (mark === '%' ? String(fault?.data) : quoted(fault?.data))),
  )
}

/** As CouchDB quotes a parameter: an empty one as the list of characters that it is. */
function quoted(value: unknown): string {
  return value === '' ? '[]' : JSON.stringify(value)
}

/** Names that clients and guides use for a single node, whatever its own name is. */
const ALIASES = ['_local', 'nonode@nohost', 'couchdb@127.0.0.1']

/** @returns the node's name (protocol.md 12.1, 15): `settee/node_name`, which `NODENAME` sets as in CouchDB's image */
export function nodeName(config: Config): string {
  return config.get('settee', 'node_name') || 'nonode@nohost'
}

/** @throws no_such_node */
export function checkNodeName(config: Config, name: string): void {
  if (name === nodeName(config) || ALIASES.includes(name)) return
  throw new CouchError('no_such_node', `no such node: ${name}`)
}
