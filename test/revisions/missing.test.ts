import t from 'tap'
import { missingRevs } from '../../src/revisions/missing.ts'
import { parseRev } from '../../src/revisions/rev.ts'
import { branches, lazily } from './helpers.ts'

const stored = branches('2:b,a', '2:c,a')

interface Case {
  about: string
  stored: typeof stored | null
  ask: string[]
  missing: string[]
  ancestors: string[]
}

const table: Case[] = [
  {
    about: 'newer revisions are missing, and older leaves may be their ancestors (19.3)',
    stored,
    ask: ['1-xyz', '2-def', '3-klm', '2-b'],
    missing: ['1-xyz', '2-def', '3-klm'],
    ancestors: ['2-c', '2-b'],
  },
  {
    about: 'no leaf is older than a missing first revision (19.3)',
    stored,
    ask: ['1-pqr'],
    missing: ['1-pqr'],
    ancestors: [],
  },
  {
    about: 'inner revisions and leaves are known (19.3)',
    stored,
    ask: ['1-a', '2-b'],
    missing: [],
    ancestors: [],
  },
  { about: 'nothing asked, nothing missing (19.3)', stored, ask: [], missing: [], ancestors: [] },
  {
    about: 'of an unknown document everything is missing (19.3)',
    stored: null,
    ask: ['1-a'],
    missing: ['1-a'],
    ancestors: [],
  },
  {
    about: 'deleted leaves count as ancestors, after the live ones',
    stored: branches('3:d,b,a!', '2:c,a', '4:x'),
    ask: ['4-e'],
    missing: ['4-e'],
    ancestors: ['2-c', '3-d'],
  },
]

for (const row of table) {
  t.test(row.about, async (t) => {
    const found = missingRevs(row.stored, row.ask.map(parseRev))
    t.strictSame(found, { missing: row.missing, possibleAncestors: row.ancestors })
  })
}

t.test('a revision newer than every leaf is found missing without loading an ancestry', async (t) => {
  const loads: string[] = []
  missingRevs(lazily(stored, loads), ['2-b', '2-d', '3-e'].map(parseRev))
  t.strictSame(loads, [])
})

t.test('a malformed revision is refused before anything is asked (19.3)', async (t) => {
  t.throws(() => ['1'].map(parseRev), { code: 'invalid_rev' })
})
