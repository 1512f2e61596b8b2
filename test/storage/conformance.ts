/**
 * What every engine must pass whole: a test for each sentence of src/storage/engine.ts. An engine's own test file
 * is one call of {@link runStorageTests}.
 */
import t from 'tap'
import { attachmentTests } from './conformance/attachments.ts'
import { catalogTests } from './conformance/catalog.ts'
import { concurrencyTests } from './conformance/concurrency.ts'
import { docTests } from './conformance/docs.ts'
import { faultTests } from './conformance/faults.ts'
import { feedTests } from './conformance/feed.ts'
import { localTests } from './conformance/locals.ts'
import { propertyTests } from './conformance/property.ts'
import { rangeTests } from './conformance/ranges.ts'
import { revisionTests } from './conformance/revisions.ts'
import { settingsTests } from './conformance/settings.ts'
import type { MakeEngine } from './conformance/setup.ts'

const PARTS = {
  catalog: catalogTests,
  documents: docTests,
  revisions: revisionTests,
  feed: feedTests,
  ranges: rangeTests,
  attachments: attachmentTests,
  'local documents': localTests,
  settings: settingsTests,
  concurrency: concurrencyTests,
  'random histories': propertyTests,
  faults: faultTests,
}

/** The fault cases open and close hundreds of databases, which takes its time on a slow disk. */
const TIMEOUT_MS = 280_000

/** Runs the suite over one kind of engine. */
export function runStorageTests(name: string, makeEngine: MakeEngine): void {
  t.setTimeout(TIMEOUT_MS)
  for (const [part, tests] of Object.entries(PARTS)) {
    t.test(`${name}: ${part}`, async (t) => tests(t, makeEngine))
  }
}
