/** The console, a web page at `/_utils` (docs/console.md). It is built from console/, and uses only the public API. */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import files from '@fastify/static'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { programFile } from '../../core/program-files.ts'
import { pathParams } from '../request-params.ts'
import { type Path, registerPaths } from '../route-table.ts'
import type { Handler } from '../services.ts'
import { useConfiguredPolicy } from '../transport/page-policy.ts'

/** The build: in dist/ beside this code, or in dist/ beside the sources. */
const FOLDERS = ['console/', '../dist/console/'].map((path) => fileURLToPath(programFile(path)))

const INDEX = 'index.html'
/** Compressed copies, which are sent in place of the files that they belong to. */
const COMPRESSED = /\.(?:br|gz)$/
/** The names of these files contain a digest of their contents. */
const HASHED = /^assets\//
const YEAR_MS = 365 * 86_400_000

/** A script within the page. */
const INLINE = /<script(?: [^>]*)?>([\s\S]*?)<\/script>/g

/**
 * The page starts by scripts of these digests, which may load others; the first of them limits those to the page's folder
 * (console/start-script.ts). It shows attachments, talks to its own server, and cannot be framed.
 */
function policyOf(digests: readonly string[]): string {
  return [
    "default-src 'none'",
    `script-src ${digests.map((digest) => `'sha256-${digest}' `).join('')}'strict-dynamic'`,
    "style-src 'self'",
    "img-src 'self' blob:",
    "media-src 'self' blob:",
    "connect-src 'self'",
    "worker-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ')
}

async function digestsIn(page: string): Promise<string[]> {
  const scripts = [...(await readFile(page, 'utf8')).matchAll(INLINE)]
  return scripts.map(([, script = '']) => createHash('sha256').update(script).digest('base64'))
}

const HEADERS = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
  'X-Frame-Options': 'DENY',
}

/**
 * Registers the console's paths.
 * @param folder the built files. Without a build, the paths answer 404
 */
export async function consoleRoutes(
  app: FastifyInstance,
  { folder = FOLDERS.find((each) => existsSync(each)) }: { readonly folder?: string } = {},
): Promise<void> {
  const names = folder === undefined ? new Set<string>() : await namesIn(folder)
  const policy = policyOf(folder === undefined ? [] : await digestsIn(join(folder, INDEX)))
  if (folder !== undefined) await app.register(files, { root: folder, serve: false, preCompressed: true })
  app.setErrorHandler((error) => {
    throw refusalOf(error)
  })
  const sendNamed = async (request: FastifyRequest, reply: FastifyReply) => {
    refuseRewritten(request)
    return sendPart(reply, { names, policy }, pathParams(request)['*'] ?? '')
  }
  const sendIndex = async (request: FastifyRequest, reply: FastifyReply) => {
    refuseRewritten(request)
    return isFolder(request.originalUrl) ? sendPart(reply, { names, policy }, INDEX) : redirectToFolder(reply)
  }
  registerPaths(app, [path('/_utils', sendIndex), path('/_utils/*', sendNamed)])
}

function path(url: string, handler: Handler): Path {
  return {
    url,
    allow: 'GET,HEAD',
    access: 'public',
    methods: { GET: { handler, credentials: 'ignored', compress: false } },
  }
}

/**
 * The console's page loads what is beside it. At the address of a design document's rewrite, that would be the design
 * document's.
 * @throws not_found
 */
function refuseRewritten({ raw }: FastifyRequest): void {
  if ('rewrites' in raw) throw new CouchError('not_found', 'A rewrite may not lead to /_utils.')
}

/** The route table's addresses have no slash at the end (app.ts), but addresses in the page are relative to `_utils/`. */
function isFolder(originalUrl: string): boolean {
  const [pathname = ''] = originalUrl.split('?')
  return pathname.endsWith('/')
}

/** Relative, since a proxy may have removed a prefix from the path. */
function redirectToFolder(reply: FastifyReply): FastifyReply {
  return reply.code(301).header('Location', '_utils/').send()
}

/** The library refuses ranges and conditions with errors of its own. */
function refusalOf(error: unknown): unknown {
  const { statusCode } = error as { readonly statusCode?: number }
  if (statusCode === 416) return new CouchError('range', undefined, { cause: error })
  if (statusCode === 412) return new CouchError('precondition', undefined, { cause: error })
  return error
}

async function namesIn(folder: string): Promise<ReadonlySet<string>> {
  const entries = await readdir(folder, { recursive: true })
  return new Set(entries.map((name) => name.replaceAll('\\', '/')).filter((name) => !COMPRESSED.test(name)))
}

interface Build {
  /** Of its files. */
  readonly names: ReadonlySet<string>
  readonly policy: string
}

/** @throws not_found for anything that is not a file of the build */
function sendPart(reply: FastifyReply, { names, policy }: Build, name: string): FastifyReply {
  if (!names.has(name) || !name.includes('.'))
    throw new CouchError('not_found', 'The console has no such file.')
  reply.headers(HEADERS)
  useConfiguredPolicy(reply, 'utils', policy)
  return HASHED.test(name)
    ? reply.sendFile(name, { maxAge: YEAR_MS, immutable: true })
    : reply.header('Cache-Control', 'no-cache').sendFile(name, { cacheControl: false })
}
