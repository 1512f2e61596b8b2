/** The settings that a standby takes from its primary. */
import t from 'tap'
import { hashPassword } from '../../src/auth/password.ts'
import { openConfig } from '../../src/config/config.ts'
import { applySettings, copiedSettings } from '../../src/standby/settings-copy.ts'
import { temporaryFolder } from '../helpers/server.ts'

t.test(
  'access and limits are copied, a machine keeps its own, and what the primary drops is dropped',
  async (t) => {
    const [primary, standby] = [
      await openConfig({ dataDir: await temporaryFolder(t), env: {}, flags: {} }),
      await openConfig({ dataDir: await temporaryFolder(t), env: {}, flags: {} }),
    ]
    const hash = await hashPassword('relax', { iterations: 10, prf: 'sha256' })
    for (const [section, key, value] of [
      ['admins', 'anna', hash],
      ['chttpd_auth', 'secret', 'of cookies'],
      ['chttpd', 'port', '1234'],
      ['chttpd', 'enable_cors', 'true'],
      ['log', 'level', 'debug'],
      ['couchdb', 'max_document_size', '8000000'],
      ['couchdb', 'max_attachment_size', '99'],
      ['settee', 'backup_interval', '24'],
      ['jwt_keys', 'hmac:_default', 'a2V5'],
    ] as const) {
      await primary.set(section, key, value)
    }
    await standby.set('cors', 'origins', 'https://own.example')
    const copied = copiedSettings(primary)
    t.strictSame(copied, {
      couchdb: { max_attachment_size: '99' },
      chttpd: { enable_cors: 'true' },
      chttpd_auth: { secret: 'of cookies' },
      admins: { anna: hash },
      jwt_keys: { 'hmac:_default': 'a2V5' },
    })
    const { keys, refused } = await applySettings(standby, copied, [])
    t.same(refused, [])
    t.equal(standby.get('admins', 'anna'), hash)
    t.equal(standby.get('chttpd', 'port'), '5984')
    t.strictSame((await applySettings(standby, copied, keys)).keys, keys)

    await primary.delete('admins', 'anna')
    await primary.set('couchdb', 'max_attachment_size', '98')
    await applySettings(standby, copiedSettings(primary), keys)
    t.equal(standby.get('admins', 'anna'), undefined)
    t.equal(standby.get('couchdb', 'max_attachment_size'), '98')
    t.equal(standby.get('cors', 'origins'), 'https://own.example')
  },
)

t.test('what a strange primary sends is refused key by key', async (t) => {
  const config = await openConfig({ dataDir: await temporaryFolder(t), env: {}, flags: {} })
  const strange = {
    admins: { eve: 'a plain password' },
    couchdb: { max_document_size: 'many', max_attachment_size: '7', database_dir: '/' },
    settee: { backup_folder: '/etc', mode: 'hosted' },
  }
  const { refused } = await applySettings(config, strange, [])
  t.match(refused, [/max_document_size/])
  t.equal(config.get('couchdb', 'max_attachment_size'), '7')
  t.same(Object.keys(config.section('admins')), [])
  t.equal(config.get('settee', 'mode'), 'single')
  t.equal(config.get('settee', 'backup_folder'), undefined)
})
