/**
 * Any byte of any file of a data folder may change while the server is stopped: what is answered with success
 * afterwards was written by somebody, and what was not damaged is served.
 *
 * One start of the server serves several rounds: each database but the last has one damaged file, and so has what
 * belongs to the whole server. `SETTEE_FOLDER_ROUNDS=10000` for more rounds, `SETTEE_FOLDER_SEED=n` for the same ones.
 */
import { cp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { startTestServer, type TestServer, temporaryFolder } from '../helpers/server.ts'
import { type Random, randomFrom } from './power-loss/random.ts'
import { damaged } from './whole-folder/damages.ts'
import { type Readings, readAll, readDatabase, Truth } from './whole-folder/readings.ts'
import {
  ADMIN,
  filesIn,
  makeTemplate,
  type Template,
  type TemplateDatabase,
} from './whole-folder/template.ts'

const ROUNDS = Number(process.env.SETTEE_FOLDER_ROUNDS ?? 6)
const SEED = Number(process.env.SETTEE_FOLDER_SEED ?? Date.now() % 1e6)
/** In one start. The last one is not damaged. */
const DATABASES = Math.min(ROUNDS, 12)
const RESTORED = 'restored'
t.setTimeout(ROUNDS * 5000 + 120_000)

t.test('no answer has a byte that nobody has written, whatever a disk has changed', async (t) => {
  t.comment(`seed ${SEED}`)
  const template = await makeTemplate(t, DATABASES)
  const { folder, databases } = template
  const contents = new Map<string, Buffer>()
  for (const file of await filesIn(folder)) {
    const bytes = await readFile(join(folder, file))
    if (bytes.length > 0) contents.set(file, bytes)
  }
  const dataDir = join(await temporaryFolder(t), 'data')
  const read = (files: ReadonlyMap<string, Buffer>) => readingsWith(template, files, dataDir)
  const whole = await read(new Map())
  t.comment(`${whole.values.size} readings`, Object.fromEntries(whole.errors))
  const truth = new Truth(whole, template)
  const undamaged = databases.at(-1)?.name
  const random = randomFrom(SEED)
  const counts = { starts: 0, refused: 0, rounds: 0 }
  const [kinds, errors] = [new Map<string, number>(), new Map<string, number>()]
  while (counts.rounds < ROUNDS) {
    const chosen = filesOf(template, [...contents.keys()], random)
    const changed = chosen.map((file) => ({ file, ...damaged(contents.get(file) as Buffer, random) }))
    const found = await read(new Map(changed.map(({ file, bytes }) => [file, bytes])))
    const whats = changed.map(({ file, what }) => `${file}: ${what}`)
    counts.starts += 1
    counts.rounds += changed.length
    for (const file of chosen) count(kinds, kindOf(file))
    for (const [error, times] of found.errors) count(errors, error, times)
    if (found.refusal !== undefined) {
      counts.refused += 1
      t.comment(`it does not start: ${found.refusal.message} (${whats.at(-1)})`)
      continue
    }
    const wrong = truth.wrongIn(found)
    if (wrong.length > 0) t.fail('an answer was never written', { whats, wrong })
    const missing = truth.missingIn(found, undamaged)
    // The admin who reads has a line there.
    if (missing.length > 0 && !chosen.includes('local.ini'))
      t.fail('what is not damaged is served', { whats, missing: missing.slice(0, 5) })
    if (!t.passing()) break
  }
  t.comment(JSON.stringify({ seed: SEED, ...counts }))
  t.comment('damaged', Object.fromEntries(kinds))
  t.comment('answers without success', Object.fromEntries(errors))
  t.pass(`${counts.rounds} rounds`)
})

/** A damaged file of each database but the last, and one of the server. */
function filesOf({ databases }: Template, files: readonly string[], random: Random): string[] {
  const oneOf = (some: readonly string[]) => some[random.below(some.length)] as string
  const chosen = databases.slice(0, -1).map(({ name }) => {
    const indexes = files.filter((file) => file.startsWith(`indexes/${name}/`))
    const file = `databases/${name}.sqlite`
    return oneOf([file, file, file, `${file}-wal`, oneOf(indexes), oneOf(indexes)])
  })
  const isOwn = (file: string) => databases.some(({ name }) => file.split('/')[1]?.split('.')[0] === name)
  const others = files.filter((file) => !isOwn(file))
  const [copies, rest] = [
    others.filter((file) => BACKED_UP.test(file)),
    others.filter((file) => !BACKED_UP.test(file)),
  ]
  return [...chosen, oneOf([oneOf(copies), oneOf(rest), oneOf(rest)])]
}

const BACKED_UP = /^backups\/[^/]+\/databases\/(notes-\d+)\.sqlite$/

function kindOf(file: string): string {
  return file
    .replace(/notes-\d+/, 'NAME')
    .replace(/[0-9a-f]{32,}/, 'SIGNATURE')
    .replace(/backups\/[^/]+/, 'backups/ID')
}

function count(counts: Map<string, number>, name: string, times = 1): void {
  counts.set(name, (counts.get(name) ?? 0) + times)
}

/**
 * Starts a server on the template's folder and reads everything.
 * @param files what takes the place of the template's
 * @param dataDir is made, and removed
 */
async function readingsWith(
  template: Template,
  files: ReadonlyMap<string, Buffer>,
  dataDir: string,
): Promise<Readings & { readonly refusal?: Error }> {
  await cp(template.folder, dataDir, { recursive: true })
  for (const [file, bytes] of files) await writeFile(join(dataDir, file), bytes)
  const endings: (() => unknown)[] = []
  const starting = { teardown: (end: () => unknown) => endings.push(end) } as unknown as Parameters<
    typeof startTestServer
  >[0]
  try {
    const server = await startTestServer(starting, { dataDir }).catch((error: Error) => error)
    if (server instanceof Error) return { values: new Map(), errors: new Map(), refusal: server }
    const found = await readAll(server, template)
    const backedUp = [...files.keys()].flatMap((file) => BACKED_UP.exec(file)?.[1] ?? [])
    for (const name of backedUp) await readRestored(server, template, name, found)
    return found
  } finally {
    for (const end of endings) await end()
    await rm(dataDir, { recursive: true, force: true })
  }
}

async function readRestored(
  server: TestServer,
  template: Template,
  name: string,
  found: Readings,
): Promise<void> {
  const path = `/_settee/backups/${template.backup}/restore`
  const body = { database: name, as: RESTORED }
  const { status } = await server.request('POST', path, { auth: ADMIN, body })
  if (status !== 200) return count(found.errors, `a restore: ${status}`)
  const restored: Readings = { values: new Map(), errors: found.errors }
  await readDatabase(
    server,
    template.databases.find((each) => each.name === name) as TemplateDatabase,
    restored,
    RESTORED,
  )
  for (const [key, value] of restored.values) found.values.set(`restored ${key}`, value)
}
