/**
 * Clients read and write documents through two openers of one state, on a network that delays calls and loses notices; an
 * opener is killed on the way. Each document is a single register (test/faults/linear/register.ts), and each feed shows every
 * document. Faults that an engine over a network could have must be found.
 *
 *     SETTEE_HISTORIES=2000 npx tap --timeout=0 test/full/storage/opener-histories.test.ts     the long form
 */
import t from 'tap'
import { type Faults, type HistoryOptions, historyOf } from '../../storage/opener-history.ts'

const HISTORIES = Number(process.env.SETTEE_HISTORIES ?? 20)
/** A mutant that this many histories do not show is not found. */
const MOST_HISTORIES = 60

t.setTimeout(120_000 + HISTORIES * 2000)

t.test(
  `${HISTORIES} histories over two openers are those of registers, and no feed skips a row`,
  async (t) => {
    for (let n = 0; n < HISTORIES; n++) t.same(await historyOf({ kills: n % 2 === 0 }), [], `history ${n}`)
  },
)

const MUTANTS: Record<string, { readonly options: HistoryOptions; readonly shows: Faults[number] }> = {
  'a view that is read after its page': {
    options: { mutant: 'view after page' },
    shows: 'a feed has skipped a row',
  },
  'a number that is taken before the commit': {
    options: { mutant: 'number before commit' },
    shows: 'a feed has skipped a row',
  },
  'notices that are lost, and nobody asks': {
    options: { network: { lost: 0.9, pollMs: null } },
    shows: 'a feed has skipped a row',
  },
  'a commit that does not compare': {
    options: { mutant: 'no comparison' },
    shows: 'a document is no register',
  },
}

for (const [name, { options, shows }] of Object.entries(MUTANTS)) {
  t.test(`the histories show a fault: ${name}`, async (t) => {
    for (let n = 0; n < MOST_HISTORIES; n++) {
      if (!(await historyOf(options)).includes(shows)) continue
      t.comment(`found by history ${n + 1}`)
      return
    }
    t.fail(`${MOST_HISTORIES} histories did not show it`)
  })
}
