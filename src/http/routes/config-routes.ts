/**
 * The configuration over HTTP; protocol.md 12.1. `/_config` is CouchDB 1.x's path of the same calls, which vendors'
 * guides still use (clients.md 1.3).
 */

import type { FastifyReply, FastifyRequest } from 'fastify'
import { isServerAdmin, requireServerAdmin } from '../../auth/accounts.ts'
import { deleteAdmin, reloadConfig, setAdmin } from '../../auth/admins.ts'
import type { WriteOptions } from '../../config/config.ts'
import { isSecretKey, SECRET_MASK } from '../../config/defaults.ts'
import { isMet, memberView, valueIn } from '../../config/member-view.ts'
import { CouchError } from '../../core/errors.ts'
import { reauthorize } from '../plugins/revocation.ts'
import { sendJson } from '../replies.ts'
import { pathParam, pathParams } from '../request-params.ts'
import { checkNodeName, nodeName, type Path, shape } from '../route-table.ts'
import { readSmallJson } from '../transport/body-reader.ts'

export const configRoutes: readonly Path[] = [
  { url: '/_node/:node', allow: 'GET,HEAD', access: 'server admin', methods: { GET: { handler: node } } },
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

/**
 * Users who are not server admins see the part of the configuration in config/member-view.ts; each handler checks the
 * caller first. Anonymous callers get CouchDB's error.
 */
function configPaths(base: string): readonly Path[] {
  return [
    {
      url: base,
      allow: 'GET',
      access: 'user',
      anonymousError: 'not_server_admin',
      methods: { GET: { handler: wholeConfig } },
    },
    {
      url: `${base}/_reload`,
      allow: 'POST',
      access: 'server admin',
      methods: { POST: { handler: reload } },
    },
    {
      url: `${base}/:section`,
      allow: 'GET',
      access: 'user',
      anonymousError: 'not_server_admin',
      methods: { GET: { handler: section } },
    },
    {
      url: `${base}/:section/:key`,
      allow: 'GET,PUT,DELETE',
      access: 'user',
      anonymousError: 'not_server_admin',
      methods: { GET: { handler: value }, PUT: { handler: setValue }, DELETE: { handler: deleteValue } },
    },
  ]
}

/** CouchDB ignores the content type here, and curl sends a wrong one. */
const configValue = shape<string>({
  type: 'string',
  refusal: ['json_string_expected', 'a JSON string expected'],
})

type Keys = Readonly<Record<string, string>>
type Sections = Readonly<Record<string, Keys>>

async function node(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  checkNode(request)
  return sendJson(reply, 200, { name: nodeName(request.server.services.config) })
}

async function wholeConfig(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  checkNode(request)
  return sendJson(reply, 200, isServerAdmin(request.user) ? shownConfig(request) : await viewOf(request))
}

/** Clients read these sections without checking that they exist (clients.md 1.2). */
const EXPECTED_SECTIONS = { admins: {}, httpd: {} }

function shownConfig(request: FastifyRequest): Sections {
  const all = Object.entries(request.server.services.config.all())
  return {
    ...EXPECTED_SECTIONS,
    ...Object.fromEntries(all.map(([name, keys]) => [name, shownSection(name, keys)])),
  }
}

function shownSection(name: string, keys: Keys): Keys {
  return Object.fromEntries(Object.entries(keys).map(([key, text]) => [key, shown(name, key, text)]))
}

/** Secrets are never shown, to any caller. */
function shown(section: string, key: string, text: string): string {
  return text !== '' && isSecretKey(section, key) ? SECRET_MASK : text
}

/** The configuration as a user who is not a server admin sees it, with the limits of the account. */
async function viewOf({ server, user }: FastifyRequest): Promise<Sections> {
  const { config, policy } = server.services
  const name = user.name ?? ''
  const maxDocumentSize = await policy.maxDocumentSize(name)
  return memberView(config, { name, ...(maxDocumentSize !== undefined && { maxDocumentSize }) })
}

async function reload(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  checkNode(request)
  const { config, logger } = request.server.services
  await reloadConfig(config, logger)
  return sendJson(reply, 200, { ok: true })
}

async function section(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  checkNode(request)
  const section = pathParam(request, 'section')
  if (isServerAdmin(request.user)) {
    return sendJson(reply, 200, shownSection(section, request.server.services.config.section(section)))
  }
  const view = await viewOf(request)
  return sendJson(reply, 200, Object.hasOwn(view, section) ? view[section] : {})
}

async function value(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  checkNode(request)
  const section = pathParam(request, 'section')
  const key = pathParam(request, 'key')
  const text = isServerAdmin(request.user)
    ? request.server.services.config.get(section, key)
    : valueIn(await viewOf(request), section, key)
  if (text === undefined) throw new CouchError('unknown_config_value')
  return sendJson(reply, 200, shown(section, key, text))
}

async function setValue(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  checkNode(request)
  const section = pathParam(request, 'section')
  const key = pathParam(request, 'key')
  if (!isServerAdmin(request.user)) await requireShown(request, section, key)
  const text = configValue(await readSmallJson(request))
  if (!isServerAdmin(request.user))
    return sendJson(reply, 200, await valueThatIsMet(request, section, key, text.trim()))
  if (isSecretKey(section, key) && MASKED.test(text)) {
    throw new CouchError('bad_request', 'The value is the mask of a secret, not a secret.')
  }
  const { config } = request.server.services
  const old =
    section === 'admins'
      ? await setAdmin(config, key, text, writeOptions(request))
      : await config.set(section, key, text, writeOptions(request))
  return sendJson(reply, 200, shown(section, key, old))
}

/** The mask of a secret, which a client has read and writes back. */
const MASKED = /^\s*\*+\s*$/

/** @throws forbidden for a key that is not shown to the caller, whatever the value */
async function requireShown(request: FastifyRequest, section: string, key: string): Promise<void> {
  const inEffect = valueIn(await viewOf(request), section, key)
  if (inEffect === undefined || section === 'admins')
    throw new CouchError('forbidden', refusalOf(section, key, inEffect))
}

/** @throws forbidden for a value that is not in effect */
async function valueThatIsMet(
  request: FastifyRequest,
  section: string,
  key: string,
  asked: string,
): Promise<string> {
  const view = await viewOf(request)
  const inEffect = valueIn(view, section, key)
  if (inEffect !== undefined && isMet(view, section, key, asked)) return inEffect
  throw new CouchError('forbidden', refusalOf(section, key, inEffect))
}

function refusalOf(section: string, key: string, inEffect: string | undefined): string {
  if (section === 'admins' || inEffect === undefined)
    return 'Only a server admin may change the configuration.'
  return `Only a server admin may change ${section}/${key}, which is "${inEffect}" for this account.`
}

async function deleteValue(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  checkNode(request)
  const section = pathParam(request, 'section')
  const key = pathParam(request, 'key')
  if (!isServerAdmin(request.user)) throw new CouchError('forbidden', refusalOf(section, key, undefined))
  const { config } = request.server.services
  const old =
    section === 'admins'
      ? await deleteAdmin(config, key, writeOptions(request))
      : await config.delete(section, key, writeOptions(request))
  return sendJson(reply, 200, shown(section, key, old))
}

/** @throws no_such_node */
function checkNode(request: FastifyRequest): void {
  const { node } = pathParams(request)
  if (node !== undefined) checkNodeName(request.server.services.config, node)
}

/**
 * `X-Couch-Persist: false` keeps a change in memory (protocol.md 3.9). If several callers try to become the first admin of
 * an open server, one succeeds: the rights of the others are checked again in their turns.
 */
function writeOptions(request: FastifyRequest): WriteOptions {
  return {
    persist: request.headers['x-couch-persist'] !== 'false',
    precondition: async () => {
      await reauthorize(request)
      requireServerAdmin(request.user)
    },
  }
}
