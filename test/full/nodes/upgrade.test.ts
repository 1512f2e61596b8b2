/**
 * Two nodes behind nginx are replaced one after the other, while clients read and write: no request is lost, and everything that was
 * acknowledged is there. By default both versions are this one.
 *
 *     SETTEE_NODE_BEFORE=/older/dist/cli/main.js npx tap test/full/nodes/upgrade.test.ts     an upgrade from another version
 */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { Audit } from '../../faults/kill/audit.ts'
import { Client } from '../../faults/kill/client.ts'
import { Ledger } from '../../faults/kill/ledger.ts'
import * as writers from '../../faults/kill/writers.ts'
import { nginxOver } from '../../helpers/node-balancers.ts'
import { MAIN, startNodes } from '../../helpers/node-processes.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'

const BEFORE = process.env.SETTEE_NODE_BEFORE ?? MAIN
const DATABASES = [writers.NOTES, writers.FILES, writers.PILE]
/** Between the steps of a writer, in ms. */
const PAUSE_MS = 150
/** nginx sends nothing to a node for this time after it has refused something, in seconds. It takes longer to stop. */
const FAIL_SECONDS = 3

t.setTimeout(180_000)

t.test('each node is replaced while clients read and write', async (t) => {
  const postgres = await startPostgres(t)
  const nodes = await startNodes(t, 2, {
    args: ['--store', await postgres.createDatabase()],
    ini: '[settee]\ndrain_seconds = 3\n',
    main: BEFORE,
  })
  const nginx = await nginxOver(
    t,
    nodes.map(({ url }) => url),
    { hasAffinity: false, isPlain: true, failSeconds: FAIL_SECONDS },
  )
  const client = new Client(nginx.url, { isOfNodes: true })
  t.teardown(() => client.close())
  for (const name of DATABASES) await client.succeed('PUT', `/${name}`)
  const ledger = new Ledger()
  const faults: string[] = []
  let isOver = false
  const repeat = async (step: () => Promise<unknown>) => {
    while (!isOver) {
      await step().catch((error: Error) => faults.push(`${error.message}: ${error.cause}`))
      await sleep(PAUSE_MS)
    }
  }
  const working = [
    ...everyWriter(ledger).map((writer) => repeat(() => writer.step(client))),
    repeat(() => client.get(`/${writers.NOTES}/_changes?limit=10&descending=true`)),
  ]
  for (const node of nodes) {
    await sleep(500)
    const begun = performance.now()
    t.equal(await node.stop(), 0)
    const stopped = performance.now()
    t.ok(stopped - begun < 10_000)
    await node.start(MAIN)
    t.comment(
      `stopped after ${Math.round(stopped - begun)} ms, up again ${Math.round(performance.now() - stopped)} ms later`,
    )
    // nginx counts whole seconds, and sends one request first: others follow when that is answered.
    await sleep((FAIL_SECONDS + 2) * 1000)
  }
  isOver = true
  await Promise.all(working)
  const audit = new Audit(client, ledger)
  faults.push(...(await audit.run(DATABASES, true, [])))
  t.comment(
    `${client.acknowledged} writes acknowledged, ${client.unanswered} unanswered; ${audit.checked} looked at`,
  )
  t.strictSame(faults.slice(0, 10), [], `${faults.length} faults`)
})

function everyWriter(ledger: Ledger): readonly writers.Writer[] {
  const { NOTES, FILES, PILE } = writers
  return [
    ...['a', 'b', 'c'].map((name) => writers.singles(ledger, NOTES, `single-${name}`)),
    writers.bulks(ledger, NOTES, 'bulk'),
    writers.inlines(ledger, FILES, 'inline'),
    writers.pushes(ledger, PILE, 'push'),
    writers.purges(ledger, PILE, 'purge'),
    writers.locals(ledger, NOTES, 'local'),
    writers.configs(ledger, 'config'),
    writers.lives(ledger, 'life'),
  ]
}
