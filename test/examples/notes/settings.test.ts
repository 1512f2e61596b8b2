import t from 'tap'
import {
  DEFAULT_MODE,
  DEFAULTS,
  readSettings,
  SettingsKeeper,
  type Shelf,
  SYNC_MODES,
} from '../../../examples/notes/src/settings.ts'
import { MASK, masked, unmasked } from '../../../examples/notes/src/sync/masked-address.ts'
import { choiceOf } from '../../../examples/notes/src/sync/target.ts'

function shelf(): Shelf {
  const kept = new Map<string, string>()
  return {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => kept.set(key, value),
    removeItem: (key) => kept.delete(key),
  }
}

t.test('there are three modes, and the hosted server is the default', async (t) => {
  t.same(SYNC_MODES, ['off', 'hosted', 'advanced'])
  t.equal(DEFAULT_MODE, 'hosted')
  t.same(new SettingsKeeper(shelf()).value, DEFAULTS)
})

t.test('each choice is kept when it is made', async (t) => {
  const kept = shelf()
  const settings = new SettingsKeeper(kept)
  settings.chooseMode('off')
  settings.setMobile(true)
  settings.setLogging(true)
  settings.signIn({
    server: 'https://h:443',
    name: 'anna',
    database: 'userdb-1',
    token: 'stt_1',
    tokenId: '1',
  })
  t.match(new SettingsKeeper(kept).value, {
    mode: 'off',
    isMobile: true,
    isLogging: true,
    account: { name: 'anna' },
  })
  settings.signOut()
  t.equal(new SettingsKeeper(kept).value.account, null)
})

t.test('an Address is kept by Apply, and only when it is one', async (t) => {
  const kept = shelf()
  const settings = new SettingsKeeper(kept)
  t.ok(settings.applyAddress(' https://a:b@h:443/notes ').ok)
  t.equal(settings.value.address, 'https://a:b@h:443/notes')
  const bad = settings.applyAddress('https://h/notes')
  t.notOk(bad.ok)
  t.equal(new SettingsKeeper(kept).value.address, 'https://a:b@h:443/notes', 'the one before stays')
  settings.setMobile(true)
  t.notOk(settings.applyAddress('http://h:5984/notes').ok, 'a mobile device demands TLS')
})

t.test('who watches hears of a change, and of none when there is none', async (t) => {
  const settings = new SettingsKeeper(shelf())
  const heard: string[] = []
  const end = settings.subscribe(({ mode }) => heard.push(mode))
  settings.chooseMode('off')
  end()
  settings.chooseMode('advanced')
  t.same(heard, ['off'])
})

t.test('full storage of the browser does not keep a user from choosing', async (t) => {
  const settings = new SettingsKeeper({
    ...shelf(),
    setItem: () => {
      throw new Error('full')
    },
  })
  const heard: string[] = []
  settings.subscribe(({ mode }) => heard.push(mode))
  settings.chooseMode('off')
  t.same(heard, ['off'], 'the sync ends')
})

t.test('what another window of the app has chosen counts here, too', async (t) => {
  const kept = shelf()
  const [one, other] = [new SettingsKeeper(kept), new SettingsKeeper(kept)]
  const heard: string[] = []
  other.subscribe(({ mode }) => heard.push(mode))
  one.chooseMode('off')
  other.reread()
  other.reread()
  t.same(heard, ['off'], 'once')
  other.setLogging(true)
  t.match(
    new SettingsKeeper(kept).value,
    { mode: 'off', isLogging: true },
    'stored settings are not overwritten',
  )
})

t.test('what cannot be read counts as not set', async (t) => {
  for (const text of [null, '', '{', '[]', '1', 'null', '"x"'])
    t.same(readSettings(text), DEFAULTS, `${text}`)
  t.same(readSettings('{"mode":"x","address":1,"isMobile":"yes","account":{"name":"a"}}'), DEFAULTS)
})

t.test('a mode counts as chosen when the user has chosen it, in an earlier version, too', async (t) => {
  const kept = shelf()
  new SettingsKeeper(kept).setLogging(true)
  t.notOk(new SettingsKeeper(kept).value.isModeChosen)
  new SettingsKeeper(kept).chooseMode('hosted')
  t.ok(new SettingsKeeper(kept).value.isModeChosen)
  t.ok(readSettings('{"mode":"off"}').isModeChosen)
  t.notOk(readSettings('{"mode":"hosted","isMobile":true}').isModeChosen)
})

t.test('the password of an Address is hidden, and the rest of it can be edited', async (t) => {
  const applied = 'https://anna:p@ss:w/x@h:443/notes'.replace('/x', '%2Fx')
  const shown = masked(applied)
  t.equal(shown, `https://anna:${MASK}@h:443/notes`)
  t.equal(unmasked(shown, applied), applied)
  t.equal(unmasked(shown.replace('h:443', 'g:1'), applied), applied.replace('h:443', 'g:1'))
  t.equal(unmasked('https://eve:new@h:443/notes', applied), 'https://eve:new@h:443/notes')
  for (const text of ['', 'https://h:443/notes', 'https://anna@h:443/n', 'https://anna:@h:443/n', 'x']) {
    t.equal(masked(text), text)
    t.equal(unmasked(text, applied), text)
  }
})

t.test('what the settings mean', async (t) => {
  const account = {
    server: 'https://h:443',
    name: 'anna',
    database: 'userdb-616e6e61',
    token: 'stt_x',
    tokenId: '1',
  }
  const idle = (settings: object, server = 'https://h:443') => {
    const choice = choiceOf({ ...DEFAULTS, ...settings }, server)
    return 'idle' in choice ? choice.idle.reason : choice.target
  }
  t.equal(idle({ mode: 'off', address: 'https://h:1/n' }), 'off')
  t.equal(idle({}), 'unchosen', 'the default is no wish of the user')
  t.equal(idle({ isModeChosen: true }), 'signed-out')
  t.equal(idle({ account }, ''), 'no-hosted-server')
  t.equal(idle({ isModeChosen: true }, ''), 'no-hosted-server')
  t.equal(idle({}, ''), 'unchosen')
  t.equal(idle({ account }, 'https://other:443'), 'signed-out', 'no other server is shown the token')
  t.equal(idle({ mode: 'advanced' }), 'no-address')
  t.equal(idle({ mode: 'advanced', address: 'http://h:1/n', isMobile: true }), 'address')
  t.match(idle({ account }), {
    mode: 'hosted',
    mobile: 'none',
    address: { url: 'https://h:443/userdb-616e6e61' },
  })
  t.match(idle({ account }), { address: { username: 'anna', password: 'stt_x' } })
  t.match(idle({ account, isMobile: true }), { mobile: 'selector' })
  t.match(idle({ mode: 'advanced', address: 'https://h:1/n', isMobile: true }), { mobile: 'filter' })
})
