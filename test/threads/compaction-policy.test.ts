import t from 'tap'
import { DEFAULT_RULES } from '../../src/core/types.ts'
import type { GarbageCounts } from '../../src/storage/upkeep.ts'
import { isDue, retention } from '../../src/threads/compactions.ts'

const NOW = 1_700_000_000_000
const DAY = 24 * 60 * 60 * 1000
const MB = 1_000_000
const RULES = DEFAULT_RULES.compaction

const garbage = (some: Partial<GarbageCounts>): GarbageCounts => ({
  writes: 0,
  fileBytes: 10 * MB,
  freeBytes: 0,
  supersededBytes: 0,
  looseBytes: 0,
  oldestRetained: null,
  compactedAt: 0,
  isOwed: false,
  ...some,
})

t.test('when a database is due for a compaction', async (t) => {
  const cases: [what: string, garbage: Partial<GarbageCounts>, isDue: boolean][] = [
    ['nothing to do', {}, false],
    ['a fifth of the file is superseded', { supersededBytes: 2.1 * MB }, true],
    ['less than that', { supersededBytes: 1.9 * MB }, false],
    ['contents that nothing may name', { looseBytes: 2.1 * MB }, true],
    ['free pages', { freeBytes: 2.1 * MB }, true],
    ['all together', { freeBytes: 0.8 * MB, supersededBytes: 0.8 * MB, looseBytes: 0.8 * MB }, true],
    ['all of a small file, but little', { fileBytes: 0.3 * MB, supersededBytes: 0.2 * MB }, false],
    ['64 MB of a large file', { fileBytes: 10_000 * MB, supersededBytes: 68 * MB }, true],
    ['little of a large file', { fileBytes: 10_000 * MB, supersededBytes: 60 * MB }, false],
    ['somebody wants something gone', { isOwed: true }, true],
    ['kept for long enough', { oldestRetained: NOW - 31 * DAY, compactedAt: NOW - 2 * DAY }, true],
    ['but looked at today', { oldestRetained: NOW - 31 * DAY, compactedAt: NOW - DAY / 2 }, false],
    ['not kept for long enough', { oldestRetained: NOW - 29 * DAY, compactedAt: NOW - 9 * DAY }, false],
  ]
  for (const [what, some, expected] of cases) t.equal(isDue(garbage(some), RULES, NOW), expected, what)
})

t.test('retained bodies are removed at once when retention is switched off', async (t) => {
  const off = { ...RULES, keepMs: 0 }
  t.equal(isDue(garbage({ oldestRetained: NOW - 1, compactedAt: NOW }), off, NOW), true)
  t.equal(isDue(garbage({}), off, NOW), false)
  t.same(retention(off, NOW), {})
  t.same(retention(RULES, NOW), { keepSince: NOW - 30 * DAY, keepBytes: 2 ** 30 })
})
