/** Holds a folder against what fault-workload.ts has told: databases, the marks stored in them, the configuration. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseIni } from '../../../src/config/ini-file.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { entriesOf } from '../../storage/conformance/setup.ts'
import { storedMarks } from '../../storage/conformance/workload.ts'
import type { Ledger } from './ledger.ts'

/** @returns what is not as it was told, after so many events of the record */
export async function untold(folder: string, ledger: Ledger, events: number): Promise<string[]> {
  const engine = sqliteEngine({ dataDir: folder })
  try {
    const listed = new Set((await entriesOf(await engine.openCatalog())).map(({ name }) => name))
    const ini = parseIni(await readFile(join(folder, 'local.ini'), 'utf8').catch(() => ''))
    const found = async (key: string): Promise<string | null> => {
      const [kind = '', name = ''] = key.split('|')
      if (kind === 'config') return ini.get(name.split('/')[0] ?? '')?.get(name.split('/')[1] ?? '') ?? null
      if (!listed.has(name)) return null
      return kind === 'db' ? 'made' : JSON.stringify(await storedMarks(await engine.openDatabase(name)))
    }
    const problems: string[] = []
    for (const key of ledger.keys('')) {
      const allowed = ledger.allowed(key, events)
      const value = await found(key)
      if (!allowed.includes(value)) problems.push(`${key}: ${value} instead of ${allowed.join(' or ')}`)
    }
    return problems
  } catch (error) {
    return [
      `it cannot be opened: ${error instanceof Error ? `${error.message} (${String(error.cause)})` : error}`,
    ]
  } finally {
    await engine.close()
  }
}
