/** One end of a replication: a database of this server, or one of another. */
import { useId } from 'preact/hooks'
import { ask } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { Field, PasswordField, SelectField, TextField } from '../../parts/field.tsx'
import { en } from '../../strings/en.ts'
import type { EndpointInput } from './job-body.ts'

const { newJob: texts } = en.replication

interface EndpointFieldsProps {
  readonly legend: string
  readonly value: EndpointInput
  readonly error?: string | undefined
  onChange(value: EndpointInput): void
}

export function EndpointFields({ legend, value, error, onChange }: EndpointFieldsProps) {
  const set = (change: Partial<EndpointInput>) => onChange({ ...value, ...change })
  return (
    <fieldset class="endpoint">
      <legend>{legend}</legend>
      <SelectField
        label={texts.place}
        value={value.place}
        options={[
          ['here', texts.here],
          ['remote', texts.remote],
        ]}
        onChange={(place) => set({ place })}
      />
      {value.place === 'here' ? (
        <LocalName value={value.database} error={error} onChange={(database) => set({ database })} />
      ) : (
        <>
          <TextField
            label={texts.address}
            hint={texts.addressHint}
            type="url"
            value={value.address}
            error={error}
            onChange={(address) => set({ address })}
            isCode
          />
          <div class="pair">
            <TextField label={texts.name} value={value.name} onChange={(name) => set({ name })} isCode />
            <PasswordField
              label={en.common.password}
              value={value.password}
              onChange={(password) => set({ password })}
              isNew
            />
          </div>
        </>
      )}
    </fieldset>
  )
}

const MAX_SUGGESTED = 20

function LocalName({
  value,
  error,
  onChange,
}: {
  readonly value: string
  readonly error: string | undefined
  readonly onChange: (value: string) => void
}) {
  const list = useId()
  const names = useLoad((signal) => namesFrom(value, signal), value)
  return (
    <Field label={texts.database} error={error}>
      {(control) => (
        <>
          <input
            {...control}
            class="is-code"
            list={list}
            autocomplete="off"
            autocapitalize="off"
            spellcheck={false}
            value={value}
            onInput={(event) => onChange(event.currentTarget.value)}
          />
          <datalist id={list}>
            {names.data?.map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
        </>
      )}
    </Field>
  )
}

/** A server may have a million databases, so only the next names are asked for. */
function namesFrom(prefix: string, signal: AbortSignal): Promise<readonly string[]> {
  const query = {
    ...(prefix !== '' && { start_key: JSON.stringify(prefix), end_key: JSON.stringify(`${prefix}\ufff0`) }),
    limit: String(MAX_SUGGESTED),
  }
  return ask('_all_dbs', { query, signal })
}
