/**
 * How a route file states its routes: a list of paths, each with its methods, who may call them, and the text of
 * `Allow` for all the others (protocol.md 1.5). The 405 answers are made here, once, for every path.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { CouchError, type ErrorName } from '../core/errors.ts'
import { requireJsonType } from './content-type.ts'
import type { Handler } from './services.ts'
import type { Schema } from './shapes.ts'

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

export interface Method {
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
