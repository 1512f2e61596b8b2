// npm start [-- options of settee serve]: builds dist/ if it is not up to date, and serves, in one process. A second
// process would take a tenth of the allowed start time.
import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'

/** The value of an option of `settee serve`, as `--name value` or `--name=value`. */
function option(name) {
  const args = process.argv.slice(2)
  const at = args.findLastIndex((arg) => arg === `--${name}` || arg.startsWith(`--${name}=`))
  if (at === -1) return undefined
  return args[at].includes('=') ? args[at].slice(name.length + 3) : args[at + 1]
}

/** `[chttpd]` of local.ini; empty where there is none. */
async function chttpd() {
  try {
    const file = join(option('data') ?? (process.env.SETTEE_DATA || 'data'), 'local.ini')
    return (await import('ini')).parse(readFileSync(file, 'utf8')).chttpd ?? {}
  } catch {
    return {}
  }
}

/** Whether another program has the port. All other problems are the server's to report. */
async function isBusy(host, port) {
  const probe = createServer()
  return new Promise((resolve) => {
    probe.once('error', ({ code }) => resolve(code === 'EADDRINUSE'))
    probe.listen({ host, port }, () => probe.close(() => resolve(false)))
  })
}

// Before the build, which takes much longer. The server checks it again.
const stored = await chttpd()
const host = option('bind') ?? (process.env.SETTEE_BIND || stored.bind_address || '127.0.0.1')
const port = Number(option('port') ?? (process.env.SETTEE_PORT || stored.port || 5984))
if (port > 0 && port < 65_536 && (await isBusy(host, port))) {
  console.error(
    `settee: Port ${port} on ${host} is already in use; stop the program that uses it, or choose another port: npm start -- --port 5985`,
  )
  process.exit(1)
}
await import('./build.mjs')
process.argv.splice(2, 0, 'serve')
await import('../dist/cli/main.js')
