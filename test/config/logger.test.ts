import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { openConfig } from '../../src/config/config.ts'
import { LOG_LEVELS } from '../../src/config/defaults.ts'
import { makeLogger } from '../../src/config/logger.ts'

interface LogLine {
  level: string
  msg: string
  [member: string]: unknown
}
const linesOf = (path: string): LogLine[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as LogLine)

t.test('lines go to log/file, at log/level, and both change at once', async (t) => {
  const dataDir = t.testdir()
  const [first, second] = [join(dataDir, 'first.log'), join(dataDir, 'second.log')]
  const config = await openConfig({ dataDir, env: {}, flags: { logFile: first, logLevel: 'notice' } })
  const { logger, close } = makeLogger(config, { tty: true })
  logger.info('hidden')
  logger.warn('seen')
  await config.set('log', 'level', 'debug')
  logger.debug({ path: '/notes' }, 'seen too')
  await config.set('log', 'level', 'none')
  logger.fatal('hidden')
  await config.set('log', 'level', 'info')
  await config.set('log', 'file', second)
  logger.info('in the second')
  await close()
  logger.info('after the end')
  await close()
  t.match(linesOf(first), [
    { level: 'warn', msg: 'seen', time: /^\d{4}-\d\d-\d\dT/ },
    { level: 'debug', msg: 'seen too', path: '/notes' },
  ])
  t.strictSame(
    linesOf(second).map(({ msg }) => msg),
    ['in the second'],
  )
  t.equal(statSync(second).mode & 0o777, 0o600)
})

t.test('a fault of a thread is logged as it came, and an error with its stack', async (t) => {
  const dataDir = t.testdir()
  const file = join(dataDir, 'x.log')
  const config = await openConfig({ dataDir, env: {}, flags: { logFile: file } })
  const { logger, close } = makeLogger(config, { tty: false })
  const fault = new TypeError('wrong', { cause: new Error('the cause') })
  logger.error({ err: fault }, 'an error')
  logger.error({ err: 'Error: of a thread\n    at x' }, 'a text')
  logger.error({ err: { code: 'not_found' } }, 'no error')
  await close()
  t.match(linesOf(file), [
    {
      err: {
        type: 'TypeError',
        message: 'wrong: the cause',
        stack: /^TypeError: wrong\n.*logger\.test\.ts.*the cause/s,
      },
    },
    { err: 'Error: of a thread\n    at x' },
    { err: { code: 'not_found' } },
  ])
})

t.test('every level of CouchDB means something', async (t) => {
  const dataDir = t.testdir()
  const config = await openConfig({ dataDir, env: {}, flags: { logFile: join(dataDir, 'x.log') } })
  const { logger, close } = makeLogger(config, { tty: false })
  t.teardown(close)
  const numbers: number[] = []
  for (const level of LOG_LEVELS) {
    await config.set('log', 'level', level, { persist: false })
    numbers.push(logger.levelVal)
  }
  t.strictSame(numbers, [20, 30, 35, 40, 40, 50, 50, 60, 60, 60, 60, 60, Number.POSITIVE_INFINITY])
})

t.test('a header that slips in is not written', async (t) => {
  const dataDir = t.testdir()
  const file = join(dataDir, 'x.log')
  const config = await openConfig({ dataDir, env: {}, flags: { logFile: file } })
  const { logger, close } = makeLogger(config, { tty: false })
  logger.info(
    { req: { headers: { authorization: 'Basic abc', cookie: 'AuthSession=abc', host: 'x' } } },
    'request',
  )
  await close()
  t.notMatch(readFileSync(file, 'utf8'), /abc/)
  t.match(readFileSync(file, 'utf8'), /"host":"x"/)
})

t.test('a file that cannot be opened ends the start, but not a running server', async (t) => {
  const dataDir = t.testdir({ folder: {} })
  const file = join(dataDir, 'x.log')
  const bad = await openConfig({ dataDir, env: {}, flags: { logFile: join(dataDir, 'folder') } })
  t.throws(() => makeLogger(bad, { tty: false }), { name: 'StartError', message: /log\/file: .* \(EISDIR\)/ })
  const config = await openConfig({ dataDir, env: {}, flags: { logFile: file } })
  const { logger, close } = makeLogger(config, { tty: false })
  await config.set('log', 'file', join(dataDir, 'missing', 'y.log'))
  logger.info('still here')
  await close()
  t.match(linesOf(file), [{ level: 'error', err: { code: 'ENOENT' } }, { msg: 'still here' }])
})

t.test('the standard output gets JSON, a terminal readable lines', async (t) => {
  const script = `
    import { openConfig } from './config.ts'
    import { makeLogger } from './logger.ts'
    const config = await openConfig({ dataDir: '/nowhere', env: {}, flags: {} })
    const { logger, close } = makeLogger(config, { tty: process.argv[1] === 'tty' })
    logger.info('hello')
    await close()`
  const run = async (argument: string): Promise<string> => {
    const cwd = fileURLToPath(new URL('../../src/config', import.meta.url))
    const args = ['--input-type=module', '--eval', script, argument]
    const child = spawn(process.execPath, args, { cwd, stdio: ['ignore', 'pipe', 'inherit'] })
    const chunks: Buffer[] = []
    child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk))
    await once(child, 'close')
    return Buffer.concat(chunks).toString()
  }
  t.match(JSON.parse(await run('pipe')), { level: 'info', msg: 'hello' })
  const readable = await run('tty')
  t.match(readable, /INFO.*hello/s)
  t.notMatch(readable, /[{}]/)
})
