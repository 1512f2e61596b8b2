/** Proxy programs in front of settee, from their packages. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { programPath } from '../../scripts/debian-packages.mjs'
import { cleanEnv } from '../cli/child.ts'

/** @throws Error that says how to install the program */
export function programOf(name: string): string {
  const path = programPath(name)
  if (path === null) throw new Error(`${name} is missing; run: node scripts/debian-packages.mjs ${name}`)
  return path
}

export interface Program {
  readonly child: ChildProcess
  /** The output so far. */
  said(): string
}

/** Runs a server program until the end of the test. Resolves when it accepts connections. */
export async function runListening(
  t: Pick<Test, 'teardown'>,
  command: readonly [string, ...string[]],
  port: number,
  env: NodeJS.ProcessEnv = {},
): Promise<Program> {
  const [program, ...args] = command
  const child = spawn(program, args, { env: { ...cleanEnv(), ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  const exited = once(child, 'exit')
  let said = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      said += chunk
    })
  }
  t.teardown(async () => {
    child.kill('SIGTERM')
    const late = setTimeout(() => child.kill('SIGKILL'), 5000)
    await exited
    clearTimeout(late)
  })
  while (!(await isListening(port))) {
    if (child.exitCode !== null) throw new Error(`${program} ended with ${child.exitCode}: ${said}`)
    await sleep(20)
  }
  return { child, said: () => said }
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
