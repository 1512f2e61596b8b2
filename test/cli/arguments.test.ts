import t from 'tap'
import { HELP, parseCommand, UsageError } from '../../src/cli/arguments.ts'

t.test('flags', (t) => {
  t.strictSame(parseCommand([]), { name: 'serve', arguments: { data: undefined, flags: {} } })
  const args = ['--port', '0', '--bind=::', '--data', 'd', '--log-level', 'debug', '--log-file', 'x.log']
  const flags = { port: 0, bind: '::', logLevel: 'debug', logFile: 'x.log' }
  t.strictSame(parseCommand(args), { name: 'serve', arguments: { data: 'd', flags } })
  t.strictSame(parseCommand(['serve', ...args]), parseCommand(args))
  t.strictSame(parseCommand([...args, 'serve']), parseCommand(args))
  t.strictSame(parseCommand(['serve', '--hosted']), {
    name: 'serve',
    arguments: { data: undefined, flags: { hosted: true } },
  })
  t.match(HELP, '--hosted ')
  for (const word of ['--help', '-h', 'help']) t.strictSame(parseCommand([word]), { name: 'help' })
  for (const word of ['--version', '-v']) t.strictSame(parseCommand([word]), { name: 'version' })
  for (const flag of ['port', 'bind', 'data', 'log-level', 'log-file']) t.match(HELP, `--${flag} <`)
  t.end()
})

t.test('mistakes are told in one sentence', (t) => {
  const table: [args: string[], message: string | RegExp][] = [
    [['--bogus'], "Unknown option '--bogus'."],
    [['-x'], "Unknown option '-x'."],
    [['start'], 'Unknown command "start".'],
    [['serve', 'me'], 'Unexpected argument "me".'],
    [['--port'], /^Option '--port <value>' argument missing\.$/],
    [['--port', '-1'], /^Option '--port' argument is ambiguous\.$/],
    [['--help=yes'], /^Option '-h, --help' does not take an argument\.$/],
    [['--data', ' '], '--data needs a value.'],
    ...['abc', '1.5', '65536', '', '0x10', '5984 '].map((port): [string[], string] => [
      [`--port=${port}`],
      `--port must be a whole number from 0 to 65535, not "${port}".`,
    ]),
  ]
  for (const [args, message] of table) {
    t.throws(() => parseCommand(args), { message })
    t.throws(() => parseCommand(args), UsageError)
  }
  t.end()
})
