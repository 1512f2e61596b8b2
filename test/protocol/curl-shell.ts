/** Runs commands in a real shell, as users type them, against a built server. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Test } from 'tap'
import { builtSettee, type Child, cleanEnv, untilUp } from '../cli/child.ts'

/** The output of a curl command: the exact body of the answer, and its status. */
export interface Printed {
  readonly status: number
  readonly body: string
}

/** A shell in which curl also prints the status, and has a time-out. */
const CURL = `curl() { command curl --silent --show-error --max-time 60 --write-out '\\n%{http_code}' "$@"; }`

/** The address in the guide's commands, which is replaced by the server's. */
const GUIDE_ADDRESS = '127.0.0.1:5984'

/**
 * Runs a command of the guide.
 * @param command with the guide's address, 127.0.0.1:5984
 * @param port where the server listens
 * @throws when the shell or curl ends with an error
 */
export async function sh(command: string, port: number): Promise<Printed> {
  const script = `${CURL}; ${atPort(command, port)}`
  const { code, stdout, stderr } = await output(script)
  if (code !== 0) throw new Error(`${command}\nended with ${code}: ${stderr}`)
  const cut = stdout.lastIndexOf('\n')
  return { status: Number(stdout.slice(cut + 1)), body: stdout.slice(0, cut) }
}

/** @returns the command with the address of the server on this port */
export function atPort(command: string, port: number): string {
  return command.replaceAll(GUIDE_ADDRESS, `127.0.0.1:${port}`)
}

async function output(script: string): Promise<{ code: unknown; stdout: string; stderr: string }> {
  const child = spawn('sh', ['-c', script], { env: cleanEnv(), stdio: ['ignore', 'pipe', 'pipe'] })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  const [code] = await once(child, 'close')
  return { code, stdout, stderr }
}

/** Starts the built server, and waits until it answers. */
export async function served(t: Test, port: number, dataDir: string, more: string[] = []): Promise<Child> {
  const child = builtSettee(t, ['serve', '--port', String(port), '--data', dataDir, ...more])
  await untilUp(child, `http://127.0.0.1:${port}`)
  return child
}

/** Kills the server with SIGKILL, which it cannot handle, like a power failure. */
export async function killHard(child: Child): Promise<void> {
  child.process.kill('SIGKILL')
  await child.ended
}
