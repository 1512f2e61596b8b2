import { once } from 'node:events'
import t from 'tap'
import { type Host, type Running, runUntilSignalled } from '../../../src/cli/serve-command.ts'
import { StartError } from '../../../src/config/start-error.ts'
import { start } from '../../cli/child.ts'

/** A fake process that records calls. */
function fakeHost() {
  const lines: string[] = []
  let signal: () => void = () => undefined
  let hangUp: () => void = () => undefined
  let fault: (fault: unknown) => void = () => undefined
  let exit: (code: number) => void
  const exited = new Promise<number>((resolve) => {
    exit = resolve
  })
  const host: Host = {
    onSignal: (listener) => {
      signal = listener
    },
    onHangUp: (listener) => {
      hangUp = listener
    },
    onFault: (listener) => {
      fault = listener
    },
    error: (line) => lines.push(line),
    exit: (code) => exit(code),
  }
  return {
    host,
    lines,
    exited,
    signal: () => signal(),
    hangUp: () => hangUp(),
    fault: (thrown: unknown) => fault(thrown),
  }
}

t.test('a failed start prints one line and has exit code 1', async (t) => {
  const { host, lines, exited } = fakeHost()
  await runUntilSignalled(() => Promise.reject(new StartError('The folder is full.')), { host })
  t.equal(await exited, 1)
  t.strictSame(lines, ['The folder is full.'])
})

t.test('a signal closes and exits with 0', async (t) => {
  const { host, lines, exited, signal } = fakeHost()
  let closed = 0
  const running: Running = {
    close: async () => {
      closed += 1
    },
  }
  await runUntilSignalled(async () => running, { host })
  signal()
  signal() // the same Ctrl-C, passed on by npm
  t.equal(await exited, 0)
  t.equal(closed, 1)
  t.strictSame(lines, [])
})

t.test('a signal during the start waits for its end', async (t) => {
  const { host, exited, signal } = fakeHost()
  let ready: (running: Running) => void = () => undefined
  let closed = false
  const starting = runUntilSignalled(
    () =>
      new Promise((resolve) => {
        ready = resolve
      }),
    { host },
  )
  signal()
  ready({
    close: async () => {
      closed = true
    },
  })
  await starting
  t.equal(await exited, 0)
  t.ok(closed)
})

t.test('a signal ends a start that waits', async (t) => {
  const { host, lines, exited, signal } = fakeHost()
  const starting = runUntilSignalled(
    (ending) =>
      new Promise((_, reject) => {
        ending.addEventListener('abort', () => reject(ending.reason))
      }),
    { host },
  )
  signal()
  await starting
  t.equal(await exited, 0)
  t.strictSame(lines, [])
})

t.test('SIGHUP reloads the configuration, from the end of the start until the stop', async (t) => {
  const { host, exited, signal, hangUp } = fakeHost()
  let ready: (running: Running) => void = () => undefined
  let read = 0
  const reload = async () => {
    read += 1
  }
  const starting = runUntilSignalled(() => new Promise((resolve) => (ready = resolve)), { host })
  hangUp()
  t.equal(read, 0)
  ready({ close: async () => undefined, reload })
  await starting
  hangUp()
  await new Promise(setImmediate)
  t.equal(read, 2, 'a SIGHUP that came before the server was ready reloads afterwards')
  signal()
  hangUp()
  t.equal(await exited, 0)
  t.equal(read, 2)
})

t.test('a close that fails or never ends has exit code 1', async (t) => {
  const failing = fakeHost()
  await runUntilSignalled(async () => ({ close: () => Promise.reject(new Error('disk gone')) }), failing)
  failing.signal()
  t.equal(await failing.exited, 1)
  t.strictSame(failing.lines, ['settee did not stop cleanly: disk gone'])
  const hanging = fakeHost()
  const never = async (): Promise<Running> => ({ close: () => new Promise(() => undefined) })
  await runUntilSignalled(never, { host: hanging.host, graceMs: 20 })
  hanging.signal()
  t.equal(await hanging.exited, 1)
  t.strictSame(hanging.lines, ['settee did not stop within 0.02 s and exits now.'])
})

t.test('a real process, real signals', async (t) => {
  const script = (close: string): string => `
    import { runUntilSignalled } from './src/cli/serve-command.ts'
    const timer = setInterval(() => {}, 1000)
    const close = async () => { console.log('closing'); ${close} }
    await runUntilSignalled(async () => ({ close }))
    console.log('started')`
  const run = (close: string) => start(t, process.execPath, ['--input-type=module', '--eval', script(close)])
  const graceful = run('clearInterval(timer)')
  await once(graceful.process.stdout!, 'data')
  graceful.process.kill('SIGTERM')
  t.match(await graceful.ended, { code: 0, stdout: /closing/, stderr: '' })
  const stuck = run('await new Promise(() => undefined)')
  await once(stuck.process.stdout!, 'data')
  stuck.process.kill('SIGINT')
  const again = setInterval(() => stuck.process.kill('SIGTERM'), 50) // counts once it is no longer the same moment
  t.match(await stuck.ended, { code: 1, stderr: '' })
  clearInterval(again)
})

t.test('an uncaught fault is logged with its stack, and ends the server with exit code 1', async (t) => {
  const { host, lines, exited, fault } = fakeHost()
  const told: unknown[] = []
  let closed = 0
  const running: Running = {
    close: async () => {
      closed += 1
    },
    fatal: (thrown) => told.push(thrown),
  }
  await runUntilSignalled(async () => running, { host })
  const first = new Error('the first')
  fault(first)
  fault('the second')
  t.equal(await exited, 1)
  t.equal(closed, 1)
  t.same(told, [first, 'the second'])
  t.match(lines, [/^settee stops after an internal error: Error: the first\n +at /, /the second$/])
})

t.test('a fault after which nothing closes still ends the process', async (t) => {
  const { host, exited, fault } = fakeHost()
  await runUntilSignalled(async () => ({ close: () => new Promise(() => undefined) }), { host, graceMs: 20 })
  fault(new Error('stuck'))
  t.equal(await exited, 1)
})

t.test('a fault during the start ends the server after the start, or when the start fails', async (t) => {
  const { host, exited, fault } = fakeHost()
  const starting = runUntilSignalled(() => new Promise(() => undefined), { host, graceMs: 20 })
  fault(new Error('too early'))
  t.equal(await exited, 1)
  starting.catch(() => undefined)
})
