/** Changes one setting, or gives it its default again. */
import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { Button } from '../../parts/button.tsx'
import { Dialog } from '../../parts/dialog.tsx'
import { Field, PasswordField, SelectField } from '../../parts/field.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { Facts } from '../../parts/page.tsx'
import { say } from '../../parts/toast.tsx'
import { en } from '../../strings/en.ts'
import { bytes } from '../../strings/format.ts'
import type { Setting } from './setting.ts'
import { problemOf, shownDefault, shownValue, sourceName } from './setting-values.ts'
import { resetSetting, writeSetting } from './settings-api.ts'

const { configuration: texts } = en.settings

interface SettingDialogProps {
  readonly setting: Setting
  readonly onClose: () => void
  readonly onChanged: () => void
}

export function SettingDialog({ setting, onClose, onChanged }: SettingDialogProps) {
  const { section, key, secret, kind } = setting
  const path = `${section}/${key}`
  const [text, setText] = useState(secret ? '' : (setting.value ?? ''))
  const [problem, setProblem] = useState<string | null>(null)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [busy, setBusy] = useState<'save' | 'reset' | null>(null)
  const run = (what: 'save' | 'reset', act: Promise<void>, done: string) => {
    setBusy(what)
    setFailure(null)
    act.then(
      () => {
        say(done)
        onChanged()
        onClose()
      },
      (error: unknown) => {
        setFailure(asFailure(error))
        setBusy(null)
      },
    )
  }
  const reset = () => run('reset', resetSetting(section, key), texts.wasReset(path))
  const save = () => {
    if (busy !== null) return
    const value = text.trim()
    // Nothing unsets a key that is unset by default.
    if (value === '' && kind.type !== 'text' && setting.default === null) {
      if (setting.source === 'default') onClose()
      else reset()
      return
    }
    const found = problemOf(kind, value)
    setProblem(found)
    if (found !== null) return
    run('save', writeSetting(section, key, value), savedText(setting, value))
  }
  const canReset = setting.source !== 'default'
  const footer = (
    <>
      {canReset && (
        <Button
          kind="quiet"
          icon="restore"
          isBusy={busy === 'reset'}
          disabled={busy === 'save'}
          onClick={reset}
        >
          {texts.reset}
        </Button>
      )}
      <span class="grow" />
      <Button onClick={onClose} disabled={busy !== null}>
        {en.common.cancel}
      </Button>
      <Button kind="primary" type="submit" isBusy={busy === 'save'} disabled={busy === 'reset'}>
        {texts.save}
      </Button>
    </>
  )
  return (
    <Dialog title={path} footer={footer} onClose={onClose} onSubmit={save}>
      <p class="soft">{setting.about ?? texts.unknown}</p>
      <Control setting={setting} text={text} problem={problem} onChange={setText} />
      <Facts
        facts={[
          { term: texts.present, value: shownValue(setting) },
          { term: texts.defaultTerm, value: shownDefault(setting) },
          { term: texts.source, value: sourceName(setting) },
        ]}
      />
      <Notes setting={setting} />
      {failure !== null && <ErrorNotice failure={failure} title={texts.notSaved} />}
    </Dialog>
  )
}

function savedText(setting: Setting, value: string): string {
  const path = `${setting.section}/${setting.key}`
  if (setting.secret) return texts.savedSecret(path)
  const shown = shownValue({ ...setting, value })
  return setting.read_at_start ? texts.savedForStart(path, shown) : texts.saved(path, shown)
}

function Notes({
  setting: { unsafe, read_at_start: isAtStart, source, source_name: name },
}: Pick<SettingDialogProps, 'setting'>) {
  const isOverridden = (source === 'environment' || source === 'command line') && name !== null
  const note = isOverridden
    ? (isAtStart ? texts.noteNoEffect : texts.noteOverride)(name)
    : isAtStart
      ? texts.noteStart
      : null
  return (
    <>
      {unsafe !== null && (
        <Notice
          tone={unsafe.severity === 'danger' ? 'bad' : 'warn'}
          title={unsafe.severity === 'danger' ? texts.danger : texts.caution}
        >
          <p>{unsafe.reason}</p>
        </Notice>
      )}
      {note !== null && <Notice tone="info">{note}</Notice>}
    </>
  )
}

interface ControlProps {
  readonly setting: Setting
  readonly text: string
  readonly problem: string | null
  readonly onChange: (text: string) => void
}

/** The control that fits the kind of the value. */
function Control({ setting, text, problem, onChange }: ControlProps) {
  const { kind, secret } = setting
  if (secret) {
    return (
      <PasswordField label={texts.value} value={text} onChange={onChange} hint={texts.secretHint} isNew />
    )
  }
  if (kind.type === 'choice') {
    const unset = setting.default === null ? ([['', texts.unsetOption]] as const) : []
    const options = [...unset, ...kind.of.map((each) => [each, each] as const)]
    return <SelectField label={texts.value} value={text} options={options} onChange={onChange} />
  }
  const isLong = kind.type === 'text' && (text.length > 50 || (setting.value ?? '').length > 50)
  return (
    <Field label={texts.value} hint={hintOf(setting, text)} error={problem}>
      {(control) =>
        isLong ? (
          <textarea
            {...control}
            class="is-code"
            rows={4}
            spellcheck={false}
            value={text}
            onInput={(event) => onChange(oneLine(event.currentTarget.value))}
          />
        ) : (
          <input
            {...control}
            class="is-code"
            inputMode={kind.type === 'integer' ? 'numeric' : undefined}
            autocomplete="off"
            autocapitalize="off"
            spellcheck={false}
            value={text}
            onInput={(event) => onChange(event.currentTarget.value)}
          />
        )
      }
    </Field>
  )
}

/** A value has one line. */
function oneLine(text: string): string {
  return text.replace(/[\r\n]+/g, ' ')
}

function hintOf({ kind, about }: Setting, text: string): string {
  if (kind.type === 'text') return texts.listHint
  const isSize = kind.type === 'bytes' || about?.startsWith('bytes')
  const value = text.trim()
  const size = isSize && /^\d{4,15}$/.test(value) ? ` ${texts.sizeHint(bytes(Number(value)))}` : ''
  return `${rangeOf(kind)}${size}`
}

function rangeOf(kind: Setting['kind']): string {
  const { values } = en.settings
  switch (kind.type) {
    case 'integer':
      return values.range(kind.min, kind.max)
    case 'bytes':
      return values.rangeOfBytes(kind.min)
    case 'count':
      return values.rangeFrom(kind.min)
    default:
      return ''
  }
}
