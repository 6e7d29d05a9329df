"""SIMD code from Python: expressions on :class:`Value` write LLVM instructions.

A Python loop is an unrolled loop, a Python function an inlined one, a Python ``if`` a choice made
before anything is compiled. What has to be decided at run time is a :meth:`Code.loop` or a
:meth:`Code.when`. LLVM, which comes with llvmlite, turns the result into machine code for the
processor at hand, so that nobody needs a compiler; the code is kept in a folder for the next time.
"""

import contextlib
import ctypes
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite
import torch
from llvmlite import binding as llvm
from llvmlite import ir

F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()


class Value:
    """A number or a vector of numbers that the compiled code will hold."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: ir.IRBuilder, value: Any) -> None:
        self.builder, self.ir = builder, value

    @property
    def type(self) -> Any:
        """Its LLVM type."""
        return self.ir.type

    @property
    def element(self) -> Any:
        """The type of one of its lanes."""
        return self.type.element if isinstance(self.type, ir.VectorType) else self.type

    def like(self, type_: Any) -> Any:
        """The type with as many lanes as this value has."""
        return ir.VectorType(type_, self.type.count) if self.type != self.element else type_

    def constant(self, number: Any) -> "Value":
        """The number in every lane; a value stays what it is."""
        if isinstance(number, Value):
            return number
        return Value(self.builder, constant(self.type, number))

    def _op(self, floats: str | None, ints: str | None, other: Any, swap: bool = False) -> "Value":
        a, b = self.ir, self.constant(other).ir
        a, b = (b, a) if swap else (a, b)
        if isinstance(self.element, ir.IntType):
            return Value(self.builder, getattr(self.builder, str(ints))(a, b))
        # Contracting a * b + c into one rounding is the only liberty that the compiler may take.
        emit = getattr(self.builder, str(floats))
        return Value(self.builder, emit(a, b, flags=("contract",)))

    def __add__(self, other: Any) -> "Value":
        return self._op("fadd", "add", other)

    def __sub__(self, other: Any) -> "Value":
        return self._op("fsub", "sub", other)

    def __rsub__(self, other: Any) -> "Value":
        return self._op("fsub", "sub", other, swap=True)

    def __mul__(self, other: Any) -> "Value":
        return self._op("fmul", "mul", other)

    def __truediv__(self, other: Any) -> "Value":
        return self._op("fdiv", None, other)

    def __rtruediv__(self, other: Any) -> "Value":
        return self._op("fdiv", None, other, swap=True)

    def reciprocal(self) -> "Value":
        """1 divided by it; in single precision to a digit or two, which is much faster."""
        if self.type != ir.VectorType(F32, 16) or not _avx512():
            return 1.0 / self
        module, name = self.builder.module, "llvm.x86.avx512.rcp14.ps.512"
        every = ir.Constant(I16, -1)  # lane
        kind = ir.FunctionType(self.type, [self.type, self.type, I16])
        function = module.globals.get(name) or ir.Function(module, kind, name)
        guess = Value(self.builder, self.builder.call(function, [self.ir, self.ir, every]))
        return guess * (2.0 - self * guess)

    def __floordiv__(self, other: Any) -> "Value":
        return self._op(None, "sdiv", other)

    def __mod__(self, other: Any) -> "Value":
        return self._op(None, "srem", other)

    def __and__(self, other: Any) -> "Value":
        return self._op(None, "and_", other)

    def __or__(self, other: Any) -> "Value":
        return self._op(None, "or_", other)

    def __xor__(self, other: Any) -> "Value":
        return self._op(None, "xor", other)

    def __lshift__(self, other: Any) -> "Value":
        return self._op(None, "shl", other)

    def __rshift__(self, other: Any) -> "Value":
        return self._op(None, "ashr", other)

    __radd__, __rmul__ = __add__, __mul__

    def _compare(self, how: str, other: Any) -> "Value":
        a, b = self.ir, self.constant(other).ir
        if isinstance(self.element, ir.IntType):
            return Value(self.builder, self.builder.icmp_signed(how, a, b))
        ordered = self.builder.fcmp_unordered if how == "!=" else self.builder.fcmp_ordered
        return Value(self.builder, ordered(how, a, b))

    def __lt__(self, other: Any) -> "Value":
        return self._compare("<", other)

    def __le__(self, other: Any) -> "Value":
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> "Value":
        return self._compare(">", other)

    def __eq__(self, other: Any) -> "Value":  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: Any) -> "Value":  # type: ignore[override]
        return self._compare("!=", other)

    def outside(self, low: int, high: int) -> "Value":
        """Whether an integer is below ``low`` or above ``high``, in one comparison."""
        distance = self - low
        limit = distance.constant(high - low).ir
        return Value(self.builder, self.builder.icmp_unsigned(">", distance.ir, limit))

    @property
    def bits(self) -> "Value":
        """The bits of a floating-point number, as an integer of the same size."""
        return self.cast({F32: I32, F64: I64}[self.element])

    @property
    def as_float(self) -> "Value":
        """The floating-point number that has these bits."""
        return self.cast(F32 if self.element == I32 else F64)

    def to(self, kind: Any) -> "Value":
        """The same number in another type; what does not fit is rounded, ties to even."""
        kinds, target = (F16, F32, F64), self.like(kind)
        if self.type == target:
            return self
        if isinstance(self.element, ir.IntType):
            if kind in kinds:
                return Value(self.builder, self.builder.sitofp(self.ir, target))
            wider = kind.width > self.element.width
            convert = self.builder.sext if wider else self.builder.trunc
            return Value(self.builder, convert(self.ir, target))
        wider = kinds.index(kind) > kinds.index(self.element)
        convert = self.builder.fpext if wider else self.builder.fptrunc
        return Value(self.builder, convert(self.ir, target))

    def unsigned_less(self, other: "Value") -> "Value":
        """Whether it is smaller than another integer, if both count as having no sign."""
        return Value(self.builder, self.builder.icmp_unsigned("<", self.ir, other.ir))

    def shifted_right(self, bits: int) -> "Value":
        """An integer without its lowest bits, filled up with zeros."""
        return Value(self.builder, self.builder.lshr(self.ir, self.constant(bits).ir))

    def cast(self, kind: Any) -> "Value":
        """The same bits as another type."""
        return Value(self.builder, self.builder.bitcast(self.ir, self.like(kind)))

    def __getitem__(self, lane: int) -> "Value":
        return Value(self.builder, self.builder.extract_element(self.ir, I32(lane)))

    def spread(self, lanes: int) -> "Value":
        """A number as a vector that holds it in every lane."""
        kind = ir.VectorType(self.type, lanes)
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), self.ir, I32(0))
        zeros = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
        return Value(self.builder, self.builder.shuffle_vector(one, one, zeros))

    def joined(self, how: Callable[["Value", "Value"], "Value"]) -> "Value":
        """One number in all lanes, made of all of them two by two."""
        value, width = self, self.type.count
        while width > 1:
            width //= 2
            value = how(value, value.shuffle([j ^ width for j in range(self.type.count)]))
        return value

    def shuffle(self, lanes: list[int], other: "Value | None" = None) -> "Value":
        """The given lanes; those of ``other`` are counted on from the last of this one's."""
        mask = ir.Constant(ir.VectorType(I32, len(lanes)), lanes)
        second = self.ir if other is None else other.ir
        return Value(self.builder, self.builder.shuffle_vector(self.ir, second, mask))


def constant(kind: Any, number: Any) -> Any:
    """An LLVM constant, the same in every lane."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [constant(kind.element, number)] * kind.count)
    return ir.Constant(kind, number)


def pick(mask: Value, a: Value, b: Any) -> Value:
    """The value of a where the mask is set, and of b elsewhere."""
    return Value(mask.builder, mask.builder.select(mask.ir, a.ir, a.constant(b).ir))


def larger(a: Value, b: Any) -> Value:
    """The larger of two; b where a is not a number."""
    return pick(a > b, a, b)


def smaller(a: Value, b: Any) -> Value:
    """The smaller of two; b where a is not a number."""
    return pick(a < b, a, b)


class Variable:
    """A value that changes from one turn of a loop to the next."""

    def __init__(self, code: "Code", start: Value) -> None:
        self._code = code
        with code.builder.goto_entry_block():  # once per call, not once per turn of a loop
            self._slot = code.builder.alloca(start.type)
        self._type = start.type
        self.set(start)

    def get(self) -> Value:
        """What it is now."""
        return Value(self._code.builder, self._code.builder.load(self._slot, typ=self._type))

    def set(self, value: Value) -> None:
        """What it is from now on."""
        self._code.builder.store(value.ir, self._slot)


class Code:
    """One function in the making."""

    def __init__(
        self, module: ir.Module, name: str, parameters: list[Any], internal: bool = False
    ) -> None:
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), parameters), name)
        self.function.attributes.add("nounwind")
        if internal:
            self.function.linkage = "internal"
            self.function.attributes.add("noinline")
        self.builder = ir.IRBuilder(self.function.append_basic_block())
        self.parameters = [Value(self.builder, p) for p in self.function.args]

    def number(self, kind: Any, value: Any) -> Value:
        """A constant."""
        return Value(self.builder, constant(kind, value))

    @contextlib.contextmanager
    def loop(self, start: Value, stop: Value, step: Value | int = 1) -> Iterator[Value]:
        """For i from start up to stop."""
        b = self.builder
        before = b.block
        head, body, after = (b.append_basic_block(name) for name in ("head", "body", "after"))
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        i.add_incoming(start.ir, before)
        b.cbranch(b.icmp_signed("<", i, stop.ir), body, after)
        b.position_at_end(body)
        yield Value(b, i)
        i.add_incoming((Value(b, i) + step).ir, b.block)
        b.branch(head)
        b.position_at_end(after)

    @contextlib.contextmanager
    def when(self, condition: Value, likely: bool | None = None) -> Iterator[None]:
        """Only if some lane of the condition is set."""
        flag = self._some(condition)
        with self.builder.if_then(flag, likely=likely):
            yield

    def either(self, condition: Value) -> Any:
        """Two blocks: if some lane of the condition is set, which is rare, and if none is."""
        return self.builder.if_else(self._some(condition), likely=False)

    def _some(self, mask: Value) -> Any:
        if isinstance(mask.type, ir.VectorType):
            return self.intrinsic("llvm.vector.reduce.or", I1, [mask.type], mask).ir
        return mask.ir

    def intrinsic(self, name: str, result: Any, overloads: list[Any], *values: Value) -> Value:
        """Call one of LLVM's own functions."""
        module = self.function.module
        suffix = "".join(f".{_suffix(kind)}" for kind in overloads)
        signature = ir.FunctionType(result, [v.type for v in values])
        known = module.globals.get(name + suffix)
        function = known or ir.Function(module, signature, name + suffix)
        return Value(self.builder, self.builder.call(function, [v.ir for v in values]))

    def call(self, other: "Code", *values: Value) -> None:
        """Call another function of ours."""
        self.builder.call(other.function, [v.ir for v in values])

    def call_external(self, name: str) -> Value:
        """Call a function of another library, which takes nothing and returns an int."""
        module = self.function.module
        known = module.globals.get(name)
        function = known or ir.Function(module, ir.FunctionType(I32, []), name)
        return Value(self.builder, self.builder.call(function, []))

    def load(self, base: Value, index: Value | int, kind: Any, mask: Value | None = None) -> Value:
        """What lies ``index`` elements behind the address ``base``; 0 where the mask is not set."""
        at = self._address(base, index, kind)
        if mask is None:
            return Value(self.builder, self.builder.load(at, align=_size(kind), typ=kind))
        align, zero = self.number(I32, _size(kind)), self.number(kind, 0)
        values = (Value(self.builder, at), align, mask, zero)
        return self.intrinsic("llvm.masked.load", kind, [kind, POINTER], *values)

    def store(
        self, value: Value, base: Value, index: Value | int, mask: Value | None = None
    ) -> None:
        """Write ``index`` elements behind the address ``base``, where the mask is set."""
        at = self._address(base, index, value.type)
        if mask is None:
            self.builder.store(value.ir, at, align=_size(value.type))
            return
        values = (value, Value(self.builder, at), self.number(I32, _size(value.type)), mask)
        masked = partial(
            self.intrinsic, "llvm.masked.store", ir.VoidType(), [value.type, POINTER], *values
        )
        if _avx512():
            masked()
            return
        # Some processors without AVX-512 (AMD's) are slow to store with lanes left out, and nearly
        # always none is.
        every = self.intrinsic("llvm.vector.reduce.and", I1, [mask.type], mask).ir
        with self.builder.if_else(every, likely=True) as (whole, part):
            with whole:
                self.store(value, base, index)
            with part:
                masked()

    def _address(self, base: Value, index: Value | int, kind: Any) -> Any:
        index = index if isinstance(index, Value) else self.number(I64, index)
        return self.builder.inttoptr((base + index * _size(kind)).ir, POINTER)

    def first_lanes(self, count: Value) -> Value:
        """The first lanes of a vector, up to a number of them."""
        numbers = ir.Constant(ir.VectorType(I32, lanes()), list(range(lanes())))
        return Value(self.builder, numbers) < count.to(I32).spread(lanes())

    def team(self, parallel: bool) -> tuple[Value, Value]:
        """The number of this thread, and how many there are."""
        if not parallel:
            return self.number(I64, 0), self.number(I64, 1)
        thread = self.call_external("omp_get_thread_num").to(I64)
        return thread, self.call_external("omp_get_num_threads").to(I64)

    def finish(self) -> None:
        """The end of the function."""
        self.builder.ret_void()


def _size(kind: Any) -> int:
    """The bytes of an element."""
    kind = kind.element if isinstance(kind, ir.VectorType) else kind
    return {F16: 2, F32: 4, F64: 8, I8: 1, I16: 2, I32: 4, I64: 8}[kind]


def _suffix(kind: Any) -> str:
    """How LLVM spells a type in the name of an intrinsic."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    if isinstance(kind, ir.PointerType):
        return "p0"
    return {F16: "f16", F32: "f32", F64: "f64"}.get(kind) or f"i{kind.width}"


# ---------------------------------------------------------------- from instructions to machine code


def _check_processor() -> None:
    """Raise unless vectors with lanes left out and half precision are single instructions."""
    features = llvm.get_host_cpu_features()
    if not (features.get("avx2") and features.get("f16c")):
        raise ImportError("compiled kernels need an x86 processor with AVX2 and F16C")


_check_processor()


def _new_machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    # LLVM avoids the widest vectors of some processors, which are a third faster here.
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features + ",-prefer-256-bit", opt=3, jit=True
    )


@cache
def _avx512() -> bool:
    return bool(llvm.get_host_cpu_features().get("avx512f"))


def lanes() -> int:
    """How many single-precision numbers to hold in a vector."""
    return 16 if _avx512() else 8


def _openmp() -> ctypes.CDLL | None:
    """The library that runs torch's threads, whose pool we share; None where it is another one."""
    for path in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
        library = ctypes.CDLL(str(path))
        numbers = (ctypes.c_uint, ctypes.c_uint)
        library.GOMP_parallel.argtypes = (ctypes.c_void_p, ctypes.c_char_p, *numbers)
        library.GOMP_parallel.restype = None
        for name in ("omp_get_thread_num", "omp_get_num_threads"):
            llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
        return library
    return None


_OPENMP = _openmp()
PARALLEL = _OPENMP is not None  # whether there are threads to share work with


def compiled(key: str, emit: Callable[[], ir.Module], threads: int) -> Callable[[bytes], None]:
    """The function ``run`` of the module that ``emit`` makes, as a call on a team of threads.

    The machine code is kept under the ``key``, the sources of this folder and the processor.
    """
    path = _folder() / f"{hashlib.sha256((key + _identity()).encode()).hexdigest()[:32]}.o"
    try:
        machine_code = path.read_bytes()
    except OSError:
        machine_code = _compile(emit())
        with contextlib.suppress(OSError):  # a folder that cannot be written costs only time
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(machine_code)
            os.replace(file.name, path)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
    engine.finalize_object()
    _ENGINES.append(engine)
    address = engine.get_function_address("run")
    if threads == 1:
        return ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
    assert _OPENMP is not None
    team = _OPENMP.GOMP_parallel
    return lambda arguments: team(address, arguments, threads, 0)


_ENGINES: list[Any] = []  # which own the machine code


def _compile(module: ir.Module) -> bytes:
    machine = _new_machine()
    parsed = llvm.parse_assembly(str(module))
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False  # it is SIMD code already
    options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(parsed, passes)
    machine_code: bytes = machine.emit_object(parsed)
    return machine_code


def _folder() -> Path:
    """Where machine code is kept: the user's folder for caches."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home()))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "lpunits" / "kernels"


@cache
def _identity() -> str:
    """What machine code depends on beside its key."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    features = llvm.get_host_cpu_features().flatten()
    source = hashlib.sha256(sources).hexdigest()
    return f"{source} {llvmlite.__version__} {llvm.get_host_cpu_name()} {features} {lanes()}"
