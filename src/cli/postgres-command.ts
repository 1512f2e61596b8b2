/** `settee postgres check` and `settee postgres distribute`. */
import { type Config, openConfig } from '../config/config.ts'
import { nodeConnections, storeAddress } from '../config/store-location.ts'
import { oneLine } from '../core/errors.ts'
import { type StoreFinding, storeFindings } from '../doctor/store-checks.ts'
import { distributeStore, readStoreFacts } from '../storage/open-engine.ts'
import { type StoreAddress, storeName } from '../storage/store-address.ts'
import { isWell, linesOf, summaryOf } from './doctor-command.ts'
import { dataFolder } from './operate.ts'
import type { PostgresCommand } from './postgres-arguments.ts'

/** @returns the exit code: 1 if something is wrong, or the store could not be asked */
export async function runPostgresCommand(command: PostgresCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    const { store, data } = command
    const dataDir = dataFolder(data, env)
    const config = await openConfig({ dataDir, env, flags: store === undefined ? {} : { store } })
    const address = await storeAddress(config)
    if (address === null)
      throw new Error('No store is given: use --store postgres://user@host/database, or set settee/store.')
    if (command.name === 'check') return await check(address, config, command.json)
    return await distribute(address, command.shards)
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

async function check(address: StoreAddress, config: Config, json: boolean): Promise<number> {
  const started = performance.now()
  const facts = await readStoreFacts(address)
  const findings = storeFindings(facts, nodeConnections(config))
  const ms = performance.now() - started
  if (json) process.stdout.write(jsonOf(address, findings, ms))
  else process.stdout.write(findings.map(linesOf).join('') + summaryOf(findings, ms))
  return isWell(findings) ? 0 : 1
}

function jsonOf(address: StoreAddress, findings: readonly StoreFinding[], ms: number): string {
  const shown = findings.map(({ name, state, text, cures }) => ({ name, state, text: oneLine(text), cures }))
  const store = storeName(address)
  return `${JSON.stringify({ store, ok: isWell(findings), ms: Math.round(ms), findings: shown })}\n`
}

async function distribute(address: StoreAddress, shards: number | null): Promise<number> {
  const { citus, statements } = await distributeStore(address, shards)
  process.stdout.write(`${statements.join('\n')}\nThe tables are distributed by Citus ${citus}.\n`)
  return 0
}
