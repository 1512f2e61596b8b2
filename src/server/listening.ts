/** Listening: ports, TLS, and the addresses of a server. */
import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import { isOpen } from '../auth/admins.ts'
import type { Config } from '../config/config.ts'
import { bindAddress, secureBindAddress } from '../config/settings.ts'
import { isTlsEnabled } from '../config/tls-files.ts'
import { setteeVersion } from '../config/version.ts'
import type { SecureListener } from '../http/transport/secure-listener.ts'

/** @param lookMs interval of checks for new certificate files, in ms @returns null without TLS */
export async function listenSecurely(
  app: FastifyInstance,
  config: Config,
  lookMs?: number,
): Promise<SecureListener | null> {
  if (!isTlsEnabled(config)) return null
  const module = await import('../http/transport/secure-listener.ts')
  const port = config.integer('ssl', 'port')
  return module.listenSecurely(app, { host: secureBindAddress(config), port, checkMs: lookMs })
}

/** @returns the server's URL, with a slash at the end */
export async function listen(app: FastifyInstance, config: Config): Promise<string> {
  const port = config.integer('chttpd', 'port')
  // Called for each address. Fastify has no logger to pass the line to (app.ts).
  const listenTextResolver = (address: string) => {
    const line = readyLine(address)
    app.services.logger.info(line)
    return line
  }
  await app.listen({ port, host: bindAddress(config), listenTextResolver })
  const url = urlOf(app)
  if (url === null) throw new Error('settee does not listen on any port')
  return url
}

/** The server's URL, with a slash at the end; null before it listens. */
export function urlOf(app: FastifyInstance): string | null {
  const address = app.server.address()
  if (address === null || typeof address === 'string') return null
  const shown = address.family === 'IPv6' ? `[${address.address}]` : address.address
  return `http://${shown}:${address.port}/`
}

/** The line that is logged for each address when the server listens. */
export function readyLine(address: string): string {
  return `settee ${setteeVersion()} is ready at ${address}/`
}

const LOOPBACK = /^(?:127\.|localhost$|\[?::1\]?$)/

/** Warns at every start without an admin, and shows the command to make one if other machines can reach the server. */
export function warnIfOpen(config: Config, logger: Logger, urls: readonly string[]): void {
  if (!isOpen(config)) return
  logger.warn('no admin is configured: everybody who can reach this server may read and change everything')
  const url = urls.find((each) => !LOOPBACK.test(new URL(each).hostname))
  if (url === undefined) return
  const { hostname } = new URL(url)
  logger.warn(
    `other machines can reach this server (${hostname}), which has no admin; make one now: ` +
      `curl -X PUT ${url}_node/_local/_config/admins/anna -d '"a long password"'`,
  )
}
