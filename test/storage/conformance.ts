/**
 * What every engine must pass: a case for each sentence of src/storage/engine.ts. An engine's test files are one call of
 * {@link runStorageTests}, and one of {@link runStorageFaultTests} in the full tier.
 */
import t from 'tap'
import { attachmentCases } from './conformance/attachments.ts'
import { catalogCases } from './conformance/catalog.ts'
import { catalogRecordCases } from './conformance/catalog-records.ts'
import { catalogUpdateCases } from './conformance/catalog-updates.ts'
import { checkCases } from './conformance/checks.ts'
import { compactionCases } from './conformance/compaction.ts'
import { concurrencyCases } from './conformance/concurrency.ts'
import { copyCases } from './conformance/copies.ts'
import { countingCases } from './conformance/counting.ts'
import { damageCases } from './conformance/damaged.ts'
import { docCases } from './conformance/docs.ts'
import { faultCases } from './conformance/faults.ts'
import { feedCases } from './conformance/feed.ts'
import { forkCases } from './conformance/forks.ts'
import { historyCases } from './conformance/history.ts'
import { keepingCases } from './conformance/keeping.ts'
import { localCases } from './conformance/locals.ts'
import { type MakeSharedData, openerCases } from './conformance/openers.ts'
import { propertyCases } from './conformance/property.ts'
import { purgeCases } from './conformance/purge.ts'
import { rangeCases } from './conformance/ranges.ts'
import { rememberedCases } from './conformance/remembered.ts'
import { replaceCases } from './conformance/replace.ts'
import { revisionCases } from './conformance/revisions.ts'
import { settingsCases } from './conformance/settings.ts'
import type { MakeEngine, StorageCases } from './conformance/setup.ts'
import { textCases } from './conformance/texts.ts'
import { updateCases } from './conformance/updates.ts'
import { stagingFaultCases } from './conformance/upload-faults.ts'
import { stagingCases } from './conformance/uploads.ts'

const PARTS: Record<string, StorageCases> = {
  catalog: catalogCases,
  'updates of the catalog': catalogUpdateCases,
  'records of the catalog': catalogRecordCases,
  'databases that are put back': replaceCases,
  documents: docCases,
  updates: updateCases,
  revisions: revisionCases,
  feed: feedCases,
  forks: forkCases,
  ranges: rangeCases,
  attachments: attachmentCases,
  staging: stagingCases,
  'local documents': localCases,
  'damaged rows': damageCases,
  checks: checkCases,
  'remembered tokens': rememberedCases,
  settings: settingsCases,
  purge: purgeCases,
  compaction: compactionCases,
  'what compaction keeps': keepingCases,
  'what sizes count': countingCases,
  copies: copyCases,
  history: historyCases,
  concurrency: concurrencyCases,
  texts: textCases,
}

/** Dozens of databases. */
const HISTORY_PARTS: Record<string, StorageCases> = { 'random histories': propertyCases }

/** An error at every operation of the driver. */
const FAULT_PARTS: Record<string, StorageCases> = {
  faults: faultCases,
  'faults while staging': stagingFaultCases,
}

/** The fault cases open and close hundreds of databases, which takes its time on a slow disk. */
const TIMEOUT_MS = 900_000

/** Runs the suite over one kind of engine, except for the faults. */
export function runStorageTests(name: string, makeEngine: MakeEngine): void {
  runStorageCases(name, makeEngine)
  runHistoryTests(name, makeEngine)
}

/** As {@link runStorageTests}, without random histories. @param without parts that are left out */
export function runStorageCases(name: string, makeEngine: MakeEngine, without: readonly string[] = []): void {
  const parts = Object.entries(PARTS).filter(([part]) => !without.includes(part))
  runParts(Object.fromEntries(parts), name, makeEngine)
}

/** Runs random histories over one kind of engine. */
export function runHistoryTests(name: string, makeEngine: MakeEngine): void {
  runParts(HISTORY_PARTS, name, makeEngine)
}

/** Runs the cases with an error at every operation over one kind of engine. */
export function runStorageFaultTests(name: string, makeEngine: MakeEngine): void {
  runParts(FAULT_PARTS, name, makeEngine)
}

/** Runs the cases of several openers, for an engine whose `capabilities.sharedWriters` is true. */
export function runOpenerTests(name: string, makeData: MakeSharedData): void {
  t.test(`${name}: several openers`, async (t) => {
    for (const [sentence, run] of Object.entries(openerCases)) t.test(sentence, (t) => run(t, makeData))
  })
}

function runParts(parts: Record<string, StorageCases>, name: string, makeEngine: MakeEngine): void {
  t.setTimeout(TIMEOUT_MS)
  for (const [part, cases] of Object.entries(parts)) {
    t.test(`${name}: ${part}`, async (t) => {
      for (const [sentence, run] of Object.entries(cases)) t.test(sentence, (t) => run(t, makeEngine))
    })
  }
}
