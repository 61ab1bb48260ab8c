"""Every error that Tilewright raises on a user's mistake.

One class per kind of mistake.  A message says what is wrong (with both shapes, dtypes or
scopes); `hint` says what to do; `location` says where, and is shown with the source line and
a caret under the expression.
"""

from __future__ import annotations

from tilewright.source import Location


class TilewrightError(Exception):
    """Base of all errors of this package.

    message: what is wrong.  location: where in the user's source.  hint: what to do.
    """

    def __init__(self, message: str, *, location: Location | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint

    def __str__(self) -> str:
        parts = [f"{self.location}: {self.message}" if self.location else self.message]
        snippet = self.location.render() if self.location else ""
        if snippet:
            parts.append(snippet)
        if self.hint:
            parts.append(f"  hint: {self.hint}")
        return "\n".join(parts)

    def at(self, location: Location | None) -> TilewrightError:
        """Set the location where it is not known yet, and return the error."""
        if self.location is None:
            self.location = location
        return self


# --- writing a kernel -----------------------------------------------------------------------


class LanguageError(TilewrightError):
    """The program is not a valid tile program."""


class UnsupportedSyntaxError(LanguageError):
    """Python that is outside the defined subset."""


class NameRebindingError(LanguageError):
    """A name is rebound, or used, where its value would depend on run-time control flow."""


class ScopeError(LanguageError):
    """An operand lives in a memory scope that the operation does not take, or is used outside its kernel."""


class ShapeError(LanguageError):
    """Shapes, ranks or extents do not fit together."""


class DTypeError(LanguageError):
    """A data type is unknown or does not fit the operation."""


class ArgumentValueError(LanguageError):
    """An argument of a language construct has a value that is not allowed."""


class KernelStructureError(LanguageError):
    """Kernels, loops or returns are nested in a way that has no meaning."""


class AnnotationError(LanguageError):
    """A parameter's annotation is missing or not understood."""


class UnknownNameError(LanguageError, AttributeError):
    """The language has nothing of that name."""


class SourceUnavailableError(LanguageError):
    """The Python source of a kernel function cannot be read."""


# --- IR text and verification ----------------------------------------------------------------


class ParseError(TilewrightError):
    """Text that is not well-formed IR."""


class VerificationError(TilewrightError):
    """IR that breaks a rule of its level; from user code it should have been caught earlier."""


# --- compiling -------------------------------------------------------------------------------


class TargetError(TilewrightError):
    """A target name is unknown, or its toolchain is not there."""


class UnsupportedOnTargetError(TilewrightError):
    """A valid program uses something that this target does not support (yet)."""


class OptionError(TilewrightError):
    """A compile option or environment variable is unknown or has a bad value."""


class CompileError(TilewrightError):
    """The back-end compiler failed."""


# --- calling a kernel ------------------------------------------------------------------------


class LaunchError(TilewrightError):
    """A kernel was called in a way that it cannot run."""


class ArgumentCountError(LaunchError, TypeError):
    """Too few or too many arguments."""


class ArgumentTypeError(LaunchError, TypeError):
    """An argument is not an array or scalar of the kind that the parameter takes."""


class ArgumentDTypeError(LaunchError):
    """An array's dtype differs from the parameter's."""


class ArgumentShapeError(LaunchError):
    """An array's rank or size differs from the parameter's, or from another argument's."""


class ArgumentStrideError(LaunchError):
    """An array's strides or alignment differ from what the parameter declares."""


class ArgumentDeviceError(LaunchError):
    """An array lives on a device that the kernel does not run on."""


class ReadOnlyArgumentError(LaunchError):
    """An array that the kernel writes is read-only."""


class ArgumentOverlapError(LaunchError):
    """An array that the kernel writes shares part of its memory with another argument."""


class DeviceAssertError(TilewrightError):
    """A `device_assert` failed while the kernel ran."""


class ResourceError(TilewrightError):
    """A kernel needs more of a resource than the target has."""
