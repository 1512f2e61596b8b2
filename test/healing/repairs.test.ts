/** What a repair does when a disk, a database or a write fails under it; the databases and their copies are played. */
import t, { type Test } from 'tap'
import type { CopyPlace } from '../../src/backup/copy-place.ts'
import { CouchError } from '../../src/core/errors.ts'
import { BodyFiles } from '../../src/documents/body-files.ts'
import { Repairs } from '../../src/healing/repairs.ts'
import type { DamagedPart } from '../../src/storage/damage.ts'
import type { FoundRevision } from '../../src/threads/good-copies.ts'
import { temporaryFolder } from '../helpers/server.ts'

type RepairsOptions = ConstructorParameters<typeof Repairs>[0]

const PARTS: readonly DamagedPart[] = ['1-a', '1-b'].map((rev) => ({ kind: 'revision', id: 'note', rev }))
const NEVER = new Promise<never>(() => undefined)
const SILENT = { info: () => undefined, warn: () => undefined }

interface Played {
  readonly place?: CopyPlace
  find?(rev: string | null): Promise<FoundRevision | null>
  put?(): Promise<unknown>
  damagedLeaves?(): Promise<{ readonly id: string; readonly rev: string }[]>
}

async function setUp(t: Test, { place, find, put, damagedLeaves }: Played) {
  const space = () => ({ free: 1e12, floor: 0, total: 1e12 })
  const files = new BodyFiles(space, () => 1, await temporaryFolder(t))
  const stored: string[] = []
  const played = {
    copies: {},
    checks: {
      start: () => ({
        find: async ({ rev }: { rev: string | null }) =>
          find === undefined ? { json: Buffer.from('{}'), copy: '/copy', contents: [] } : find(rev),
        close: async () => undefined,
      }),
    },
    has: async (name: string) => name === 'notes',
    get: async () => ({
      put: async (_user: unknown, id: string) => {
        await put?.()
        stored.push(id)
      },
      damagedLeaves: damagedLeaves ?? (async () => [{ id: 'note', rev: '1-a' }]),
    }),
  }
  const repairs = new Repairs({
    databases: played as unknown as RepairsOptions['databases'],
    places: [place ?? { copiesOf: async () => [{ path: '/copy', name: 'the backup x' }] }],
    files,
    logger: SILENT,
    maxFindMs: 50,
  })
  t.teardown(() => repairs.close())
  return { repairs, stored }
}

t.test('a disk that never answers keeps nothing else waiting', async (t) => {
  const { repairs } = await setUp(t, { place: { copiesOf: () => NEVER } })
  const [first, second] = await repairs.run('notes', PARTS, { writes: true })
  t.match(first, { isRepaired: false, copy: null, fault: /does not answer/ })
  t.match(second, { isRepaired: false, copy: null, fault: /does not answer/ })
  t.equal(await repairs.repairLeaves('notes'), false, 'the next one has its turn, and devices are asked')
})

t.test('a database whose file cannot be read is not repaired, and nothing else ends', async (t) => {
  const damagedLeaves = async () => {
    throw new CouchError('damaged_file')
  }
  const { repairs } = await setUp(t, { damagedLeaves })
  t.equal(await repairs.repairLeaves('notes'), false)
})

t.test('one revision that cannot be looked for ends the run', async (t) => {
  const asked: (string | null)[] = []
  const find = async (rev: string | null) => {
    asked.push(rev)
    return NEVER
  }
  const { repairs } = await setUp(t, { find })
  const outcomes = await repairs.run('notes', PARTS, { writes: true })
  t.strictSame(
    outcomes.map(({ isRepaired }) => isRepaired),
    [false, false],
  )
  t.strictSame(asked, ['1-a'])
})

t.test('a write that is refused says why, and where the good copy is', async (t) => {
  const put = async () => {
    throw new CouchError('insufficient_storage')
  }
  const { repairs, stored } = await setUp(t, { put })
  const [outcome] = await repairs.run('notes', PARTS, { writes: true })
  t.match(outcome, { isRepaired: false, copy: 'the backup x', fault: String })
  t.strictSame(stored, [])
})

t.test('a database that is replaced meanwhile is repaired afterwards', async (t) => {
  let tries = 0
  const put = async () => {
    tries += 1
    if (tries === 1) throw new CouchError('no_database')
  }
  const { repairs, stored } = await setUp(t, { put })
  const told: string[] = []
  repairs.onRepaired = (name) => told.push(name)
  t.equal(await repairs.repairLeaves('notes'), true)
  t.strictSame(stored, ['note'])
  t.strictSame(told, ['notes'])
})

t.test('several parts of one revision are one repair; what is not of a revision is left alone', async (t) => {
  const { repairs, stored } = await setUp(t, {})
  const attachments: DamagedPart[] = ['a.png', 'b.png'].map((name) => {
    return { kind: 'attachment', id: 'note', rev: '1-a', name }
  })
  const others: DamagedPart[] = [{ kind: 'security' }, { kind: 'local', id: '_local/a' }, { kind: 'file' }]
  const outcomes = await repairs.run('notes', [...attachments, ...others], { writes: true })
  t.strictSame(
    outcomes.map(({ isRepaired }) => isRepaired),
    [true, true, false, false, false],
  )
  t.strictSame(stored, ['note'])
  await repairs.run('notes', attachments, { writes: false })
  t.strictSame(stored, ['note'], 'a look stores nothing')
})
