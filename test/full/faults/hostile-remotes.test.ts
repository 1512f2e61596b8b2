/**
 * Servers that mean harm to whoever replicates or moves from them: whatever they answer, no turn of the HTTP thread is long,
 * memory stays bounded, `/_up` answers, and what ends the work is a reason in words, not an internal error.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { reachServer } from '../../../src/control/control-socket.ts'
import { type HostileRemote, hostileRemote } from '../../faults/hostile/remote.ts'
import { HOSTILITIES, type Hostility } from '../../faults/hostile/replies.ts'
import { memoryOf } from '../../faults/hostile/watch.ts'
import { type LogLine, type ServerProcess, startServerProcess } from '../../faults/server-process.ts'

const MB = 1024 * 1024
/** On a busy machine a thread waits for a processor; without the bounds, turns take seconds. */
const TURN_MS = 250
const MEMORY = 300 * MB
const TRIES = 3
/** How long one answer is endured, in ms. */
const PATIENCE_MS = 2500
/** How long a server is followed, in ms. */
const FOLLOWED_MS = 1500
const ADMIN = { authorization: `Basic ${Buffer.from('root:secret-of-root').toString('base64')}` }
const PASSWORD = 'hidden-word'

t.setTimeout(1_800_000)

/** `all`, or what the names match; by default every fourth answer. */
const only = process.env.SETTEE_HOSTILE ?? ''
const WORK = { replicate, move, follow }

for (const how of ['replicate', 'move', 'follow'] as const) {
  const all = HOSTILITIES.filter((each) => each.how === how)
  const wanted = all.filter((each, at) => {
    if (only === '') return at % 4 === 0
    return only === 'all' || new RegExp(only).test(each.name)
  })
  t.test(`${how}: ${wanted.length} answers`, async (t) => {
    const ini = '[admins]\nroot = secret-of-root\n'
    const server = await startServerProcess(t, { isBuilt: true, ini })
    for (const each of wanted) {
      let seen = await endure(t, server, each)
      for (let tries = 1; tries < TRIES && seen.faults.length > 0; tries++)
        seen = await endure(t, server, each)
      const { turn, thread, grown, reason, faults } = seen
      t.comment(`${turn.toFixed(0)} ms in ${thread}, ${Math.round(grown / MB)} MB: ${reason}`)
      t.same(faults, [], each.name)
    }
    const log = server.log()
    t.notMatch(JSON.stringify(log), PASSWORD, 'no secret in the log')
    t.same(log.filter(isInternal), [], 'no internal errors')
    const admins = await server.ask('GET', '/_node/_local/_config/admins', undefined, ADMIN)
    t.same(Object.keys(admins.json), ['root'], 'no admin was added')
  })
}

/** A standby is right to stop when its primary is not what it was. */
function isInternal({ level, msg }: LogLine): boolean {
  return level === 'error' && !msg.includes('stopped following')
}

interface Seen {
  readonly turn: number
  readonly thread: string
  readonly grown: number
  readonly reason: string
  readonly faults: readonly string[]
}

async function endure(
  t: { teardown(end: () => void): void },
  server: ServerProcess,
  each: Hostility,
): Promise<Seen> {
  const remote = await hostileRemote(t, each.script)
  await longestTurn(server)
  const memory = memoryOf(server.pid())
  const reason = await WORK[each.how](server, remote, each)
  const grown = memory.end()
  const { turn, thread } = await longestTurn(server)
  const faults = [
    turn > TURN_MS && `a turn of ${thread} took ${Math.round(turn)} ms`,
    grown > MEMORY && `memory grew by ${Math.round(grown / MB)} MB`,
    /internal|undefined|is not a function|\[object|Cannot/.test(reason) && reason,
    reason.includes(PASSWORD) && 'the reason has the password',
    reason.length > 100_000 && 'the reason is long',
  ]
  return {
    turn,
    thread,
    grown,
    reason: reason.slice(0, 300),
    faults: faults.filter((fault) => fault !== false),
  }
}

let targets = 0

function targetOf({ name }: Hostility): string {
  targets += 1
  return `${name.includes('checkpoint') ? 'checkpoint' : 'target'}-${targets}`
}

async function replicate(server: ServerProcess, { url }: HostileRemote, each: Hostility): Promise<string> {
  const name = targetOf(each)
  const source = `${url.replace('://', `://anna:${PASSWORD}@`)}/notes`
  const body = {
    ...{ source, target: name, create_target: true, use_checkpoints: name.includes('checkpoint') },
    ...{ retries_per_request: 0, connection_timeout: 2000 },
  }
  const late = sleep(PATIENCE_MS, null, { ref: false })
  const answer = await Promise.race([server.ask('POST', '/_replicate', body, ADMIN), late])
  if (answer === null) await server.ask('POST', '/_replicate', { ...body, cancel: true }, ADMIN)
  await server.ask('DELETE', `/${name}`, undefined, ADMIN)
  return answer === null ? 'goes on until it is cancelled' : `${answer.status} ${JSON.stringify(answer.json)}`
}

async function move(server: ServerProcess, remote: HostileRemote): Promise<string> {
  const source = remote.url.replace('://', `://anna:${PASSWORD}@`)
  await server.ask('DELETE', '/notes', undefined, ADMIN)
  const { json } = await server.ask('POST', '/_settee/moves', { source }, ADMIN)
  const path = `/_settee/moves/${json.id}`
  const until = performance.now() + PATIENCE_MS
  // What has failed is tried again for half a minute, with the same outcome.
  while (performance.now() < until && !hasRetried(remote)) {
    const { json: run } = await server.ask('GET', path, undefined, ADMIN)
    if (run.ended_at !== null) return JSON.stringify([run.state, run.error, run.results])
    await sleep(20)
  }
  await server.ask('DELETE', path, undefined, ADMIN)
  return hasRetried(remote) ? 'is tried again' : 'goes on until it is stopped'
}

/** Whether a question was asked a third time: a plan and a move read some things twice. */
function hasRetried({ scripted }: HostileRemote): boolean {
  return scripted.some((request) => scripted.filter((other) => other === request).length > 2)
}

/** Lets the server follow, and become an ordinary one again. */
async function follow(server: ServerProcess, remote: HostileRemote): Promise<string> {
  const controls = await reachServer(server.dataDir)
  if (controls === null) throw new Error('the server does not listen')
  const url = remote.url.replace('://', `://anna:${PASSWORD}@`)
  const { json: names } = await server.ask('GET', '/_all_dbs', undefined, ADMIN)
  for (const name of names as string[]) {
    if (!name.startsWith('_')) await server.ask('DELETE', `/${name}`, undefined, ADMIN)
  }
  const refusal = await controls.follow({ url, again: false }).then(
    () => null,
    (error: Error) => error.message,
  )
  if (refusal !== null) return refusal
  const until = performance.now() + FOLLOWED_MS
  let report = await controls.readStandby({})
  while (performance.now() < until && report.state === 'following') {
    await sleep(50)
    report = await controls.readStandby({})
  }
  await controls.promote({})
  return JSON.stringify([report.state, report.reason, report.failures])
}

/** Since the last call, in ms. */
async function longestTurn(server: ServerProcess): Promise<{ turn: number; thread: string }> {
  const { json } = await server.ask('GET', '/_node/_local/_prometheus', undefined, ADMIN)
  const lines = String(json).matchAll(
    /^settee_event_loop_delay_seconds\{thread="([^"]+)",stat="max"\} (\S+)$/gm,
  )
  const turns = [...lines].map(([, thread = '', seconds]) => ({ thread, turn: Number(seconds) * 1000 }))
  return turns.reduce((a, b) => (b.turn > a.turn ? b : a), { thread: '', turn: 0 })
}
