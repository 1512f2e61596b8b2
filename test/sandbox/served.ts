/** Sandboxes on real threads, as database threads use them. */
import type { Test } from 'tap'
import type { Sandbox } from '../../src/sandbox/messages.ts'
import { SandboxClient } from '../../src/sandbox/sandbox-client.ts'
import { SandboxPool, type SandboxPoolOptions } from '../../src/sandbox/sandbox-pool.ts'
import type { FunctionLimits } from '../../src/sandbox/slot-table.ts'

const ENTRY = new URL('../helpers/sandbox-thread.mjs', import.meta.url)

export const LIMITS: FunctionLimits = { timeoutMs: 5000, memory: 67_108_864 }

export interface ServedSandbox {
  readonly pool: SandboxPool
  readonly sandbox: Sandbox
  readonly faults: unknown[]
  /** The sandbox of another database thread. */
  join(maxWaitMs?: number): SandboxClient
  readonly client: SandboxClient
}

/** A pool with one client, closed when the test ends. */
export function serveSandbox(t: Test, options: Partial<SandboxPoolOptions> = {}): ServedSandbox {
  const faults: unknown[] = []
  const pool = new SandboxPool({
    entry: ENTRY,
    execArgv: [],
    limits: LIMITS,
    onFault: (fault) => faults.push(fault),
    ...options,
  })
  // Waiting for a sandbox thread does not keep the process alive, and a server has other work that does.
  const alive = setInterval(() => undefined, 60_000)
  t.teardown(() => clearInterval(alive))
  t.teardown(() => pool.close())
  const join = (maxWaitMs?: number) => {
    const member = pool.join((notice) => client.notice(notice))
    const client = new SandboxClient(member.access, member.need, maxWaitMs)
    t.teardown(() => client.close())
    return client
  }
  const client = join()
  return { pool, client, sandbox: client.sandbox, faults, join }
}
