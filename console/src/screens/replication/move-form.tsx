/** Where from, and what. */
import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { Button } from '../../parts/button.tsx'
import { CheckField, PasswordField, TextField } from '../../parts/field.tsx'
import { ErrorNotice } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'

const { move: texts } = en.replication

export interface MoveInput {
  readonly address: string
  readonly name: string
  readonly password: string
  /** Names, separated by commas or spaces; empty: all. */
  readonly databases: string
  readonly merges: boolean
  readonly keepsUuid: boolean
}

export const NEW_MOVE: MoveInput = {
  address: '',
  name: '',
  password: '',
  databases: '',
  merges: false,
  keepsUuid: false,
}

interface MoveFormProps {
  readonly input: MoveInput
  onChange(input: MoveInput): void
  onLook(): Promise<void>
}

export function MoveForm({ input, onChange, onLook }: MoveFormProps) {
  const [isTried, setTried] = useState(false)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const set = (change: Partial<MoveInput>) => onChange({ ...input, ...change })
  const fault = addressFault(input.address)
  const submit = (event: Event) => {
    event.preventDefault()
    setTried(true)
    setFailure(null)
    if (fault !== null || isBusy) return
    setBusy(true)
    onLook().catch((error: unknown) => {
      setFailure(asFailure(error))
      setBusy(false)
    })
  }
  return (
    <Card title={texts.title} lead={texts.lead}>
      <form class="stack move-form" onSubmit={submit}>
        <TextField
          label={texts.address}
          hint={texts.addressHint}
          type="url"
          value={input.address}
          error={isTried ? fault : null}
          onChange={(address) => set({ address })}
          isCode
        />
        <div class="pair">
          <TextField label={texts.name} value={input.name} onChange={(name) => set({ name })} isCode />
          <PasswordField
            label={en.common.password}
            value={input.password}
            onChange={(password) => set({ password })}
            isNew
          />
        </div>
        <details>
          <summary>{texts.more}</summary>
          <div class="stack">
            <TextField
              label={texts.databases}
              hint={texts.databasesHint}
              value={input.databases}
              onChange={(databases) => set({ databases })}
              isCode
            />
            <CheckField
              label={texts.merge}
              hint={texts.mergeHint}
              isOn={input.merges}
              onChange={(merges) => set({ merges })}
            />
            <CheckField
              label={texts.keepUuid}
              hint={texts.keepUuidHint}
              isOn={input.keepsUuid}
              onChange={(keepsUuid) => set({ keepsUuid })}
            />
          </div>
        </details>
        {failure !== null && <ErrorNotice failure={failure} title={texts.notLooked} />}
        <div class="row">
          <Button kind="primary" type="submit" isBusy={isBusy}>
            {texts.look}
          </Button>
          <span class="fine">{texts.lookHint}</span>
        </div>
      </form>
    </Card>
  )
}

/** @returns null for the address of a server */
function addressFault(address: string): string | null {
  const text = address.trim()
  if (text === '') return texts.noAddress
  return /^https?:\/\/[^/]/i.test(text) && URL.canParse(text) ? null : texts.badAddress
}
