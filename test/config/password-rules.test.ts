/** `chttpd_auth/password_regexp`, an Erlang list. */
import t from 'tap'
import { passwordRules } from '../../src/config/password-rules.ts'
import { checkSetting } from '../../src/config/values.ts'

t.test('lists of patterns', async (t) => {
  const rule = (pattern: string, reason = '') => ({ pattern, reason })
  const table: [text: string, rules: unknown][] = [
    ['', []],
    ['  ', []],
    ['[]', []],
    ['[ ].', []],
    ['["a"]', [rule('a')]],
    ['[ "a" , {"b"}, {"c", "d e"} ]', [rule('a'), rule('b'), rule('c', 'd e')]],
    ['["\\\\d{2}", {".\\"x", "say \\"x\\""}]', [rule('\\d{2}'), rule('."x', 'say "x"')]],
    ['["\\s\\t\\x41\\x{1F511}\\101\\q"]', [rule(' \tA🔑Aq')]],
  ]
  for (const [text, rules] of table) t.same(passwordRules(text), rules, text)
})

t.test('what is none', async (t) => {
  const texts = [
    'x',
    '"a"',
    '["a"',
    '["a"] "b"',
    '[a]',
    '["a",]',
    '[{"a","b","c"}]',
    '[{}]',
    '["(]',
    '["\\x{110000}"]',
  ]
  for (const text of texts) t.equal(passwordRules(text), null, text)
})

t.test('over HTTP only a list is taken, with its brackets', async (t) => {
  t.doesNotThrow(() => checkSetting('chttpd_auth', 'password_regexp', '["[a-z]", {"[0-9]", "A digit."}]'))
  t.throws(() => checkSetting('chttpd_auth', 'password_regexp', '["a"'), /must be a list of patterns/)
  t.throws(() => checkSetting('chttpd_auth', 'password_regexp', '["a\n"]'), /Invalid configuration value/)
  for (const [prefix, isGood] of [
    ['userdb-', true],
    ['a/b', true],
    ['', false],
    ['_users', false],
    ['X', false],
    ['a'.repeat(300), false],
  ] as const) {
    const set = () => checkSetting('couch_peruser', 'database_prefix', prefix)
    if (isGood) t.doesNotThrow(set, prefix)
    else t.throws(set, /must be a valid prefix for the name of a database/)
  }
})
