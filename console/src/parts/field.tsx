import type { ComponentChildren } from 'preact'
import { useId, useState } from 'preact/hooks'
import { en } from '../strings/en.ts'
import { Button } from './button.tsx'

/** What connects a control to its label, hint and error. */
export interface FieldControl {
  readonly id: string
  readonly 'aria-describedby': string | undefined
  readonly 'aria-invalid': boolean | undefined
}

interface FieldProps {
  readonly label: ComponentChildren
  readonly hint?: ComponentChildren
  readonly error?: string | null | undefined
  /** Renders the control, which takes the given attributes. */
  readonly children: (control: FieldControl) => ComponentChildren
}

/** A labelled control. */
export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId()
  const describedBy = [hint !== undefined && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ')
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({
        id,
        'aria-describedby': describedBy || undefined,
        'aria-invalid': error ? true : undefined,
      })}
      {hint !== undefined && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error && (
        <p class="field-error" id={`${id}-error`} role="alert">
          {error}
        </p>
      )}
    </div>
  )
}

interface TextFieldProps {
  readonly label: string
  readonly value: string
  readonly onChange: (value: string) => void
  readonly hint?: ComponentChildren
  readonly error?: string | null | undefined
  readonly type?: 'text' | 'number' | 'email' | 'url' | 'search' | 'datetime-local'
  readonly placeholder?: string
  readonly autocomplete?: string
  readonly required?: boolean
  readonly disabled?: boolean
  /** For names and code: no capital letters, no spelling. */
  readonly isCode?: boolean
}

export function TextField(props: TextFieldProps) {
  const { label, hint, error, value, onChange, type = 'text', isCode = false } = props
  return (
    <Field label={label} hint={hint} error={error}>
      {(control) => (
        <input
          {...control}
          class={isCode ? 'is-code' : undefined}
          // Preact's types know one kind of input at a time.
          type={type as 'text'}
          value={value}
          placeholder={props.placeholder}
          autocomplete={props.autocomplete ?? 'off'}
          autocapitalize={isCode ? 'off' : undefined}
          spellcheck={isCode ? false : undefined}
          required={props.required}
          disabled={props.disabled}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
    </Field>
  )
}

const MIN_PASSWORD = 8

/** The fault of a new password, as a sentence; null: none. */
export function passwordFault(password: string): string | null {
  return password.length < MIN_PASSWORD ? en.common.passwordShort(MIN_PASSWORD) : null
}

interface PasswordFieldProps extends Pick<TextFieldProps, 'label' | 'value' | 'onChange' | 'hint' | 'error'> {
  readonly isNew?: boolean
}

export function PasswordField({ label, value, onChange, hint, error, isNew = false }: PasswordFieldProps) {
  const [isShown, setShown] = useState(false)
  return (
    <Field label={label} hint={hint} error={error}>
      {(control) => (
        <div class="joined">
          <input
            {...control}
            type={(isShown ? 'text' : 'password') as 'text'}
            value={value}
            autocomplete={isNew ? 'new-password' : 'current-password'}
            autocapitalize="off"
            spellcheck={false}
            onInput={(event) => onChange(event.currentTarget.value)}
          />
          <Button
            icon="eye"
            label={isShown ? en.common.hidePassword : en.common.showPassword}
            isPressed={isShown}
            onClick={() => setShown(!isShown)}
          />
        </div>
      )}
    </Field>
  )
}

interface SelectFieldProps<Value extends string> {
  readonly label: string
  readonly value: Value
  readonly options: readonly (readonly [value: Value, text: string])[]
  readonly onChange: (value: Value) => void
  readonly hint?: ComponentChildren
}

export function SelectField<Value extends string>({
  label,
  value,
  options,
  onChange,
  hint,
}: SelectFieldProps<Value>) {
  return (
    <Field label={label} hint={hint}>
      {(control) => (
        <select {...control} value={value} onChange={(event) => onChange(event.currentTarget.value as Value)}>
          {options.map(([each, text]) => (
            <option key={each} value={each} selected={each === value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  )
}

interface CheckFieldProps {
  readonly label: ComponentChildren
  readonly isOn: boolean
  readonly onChange: (isOn: boolean) => void
  readonly hint?: ComponentChildren
  readonly disabled?: boolean
}

export function CheckField({ label, isOn, onChange, hint, disabled }: CheckFieldProps) {
  const id = useId()
  return (
    <div class="check-field">
      <input
        id={id}
        type="checkbox"
        checked={isOn}
        disabled={disabled}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      <label for={id}>{label}</label>
      {hint !== undefined && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  )
}
