/**
 * The configuration over HTTP; protocol.md 12.1. `/_config` is CouchDB 1.x's address of the same calls, which
 * vendors' guides still name (clients.md 1.3).
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { deleteAdmin, setAdmin } from '../../auth/admins.ts'
import { CouchError } from '../../core/errors.ts'
import { checkNodeName, NODE_NAME } from '../node-name.ts'
import { sendJson } from '../replies.ts'
import type { Path } from '../route-table.ts'
import { shape } from '../shapes.ts'
import { readSmallJson } from '../small-json.ts'

export const configRoutes: readonly Path[] = [
  { url: '/_node/:node', allow: 'GET,HEAD', access: 'server admin', methods: { GET: { handler: nodeName } } },
  { url: '/_node', allow: 'GET,HEAD', access: 'server admin', methods: anyMethod(refuseIncomplete) },
  { url: '/_node/:node/*', allow: 'GET,HEAD', access: 'server admin', methods: anyMethod(refuseUnknown) },
  ...configPaths('/_node/:node/_config'),
  ...configPaths('/_config'),
]

function anyMethod(handler: () => Promise<never>): Path['methods'] {
  return { GET: { handler }, POST: { handler }, PUT: { handler }, DELETE: { handler }, COPY: { handler } }
}

async function refuseIncomplete(): Promise<never> {
  throw new CouchError('bad_request', 'Incomplete path to _node request')
}

async function refuseUnknown(): Promise<never> {
  throw new CouchError('not_found')
}

function configPaths(base: string): readonly Path[] {
  return [
    { url: base, allow: 'GET', access: 'server admin', methods: { GET: { handler: wholeConfig } } },
    { url: `${base}/:section`, allow: 'GET', access: 'server admin', methods: { GET: { handler: section } } },
    {
      url: `${base}/:section/:key`,
      allow: 'GET,PUT,DELETE',
      access: 'server admin',
      methods: { GET: { handler: value }, PUT: { handler: setValue }, DELETE: { handler: deleteValue } },
    },
  ]
}

/** A value as it comes: CouchDB looks at no content type here, and people's curl sends none that fits. */
const configValue = shape<string>({
  type: 'string',
  refusal: ['json_string_expected', 'a JSON string expected'],
})

interface Params {
  readonly node?: string
  readonly section: string
  readonly key: string
}

async function nodeName(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  paramsOf(request)
  return sendJson(reply, 200, { name: NODE_NAME })
}

async function wholeConfig(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  paramsOf(request)
  return sendJson(reply, 200, request.server.services.config.all())
}

async function section(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, request.server.services.config.section(paramsOf(request).section))
}

async function value(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const params = paramsOf(request)
  const text = request.server.services.config.get(params.section, params.key)
  if (text === undefined) throw new CouchError('unknown_config_value')
  return sendJson(reply, 200, text)
}

async function setValue(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const params = paramsOf(request)
  const text = configValue(await readSmallJson(request))
  const { config } = request.server.services
  const old =
    params.section === 'admins'
      ? await setAdmin(config, params.key, text, persistence(request))
      : await config.set(params.section, params.key, text, persistence(request))
  return sendJson(reply, 200, old)
}

async function deleteValue(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const params = paramsOf(request)
  const { config } = request.server.services
  const old =
    params.section === 'admins'
      ? await deleteAdmin(config, params.key, persistence(request))
      : await config.delete(params.section, params.key, persistence(request))
  return sendJson(reply, 200, old)
}

/** @throws no_such_node */
function paramsOf(request: FastifyRequest): Params {
  const params = request.params as Params
  if (params.node !== undefined) checkNodeName(params.node)
  return params
}

/** `X-Couch-Persist: false` keeps a change in memory (protocol.md 3.9). */
function persistence({ headers }: FastifyRequest): { persist: boolean } {
  return { persist: headers['x-couch-persist'] !== 'false' }
}
