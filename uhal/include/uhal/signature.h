/* Facts of a kernel's parameters in a device's image: <uhal/kernel.h> includes this for devices.
 *
 * Compilers keep the sizes of parameters and drop names, signs and const. So each KERNEL leaves a
 * constant `uhal_signature_<entry>` in the image: six characters a parameter, a bar, and the
 * parameter list as the source spells it. The six characters are `p` for a pointer, `c` for a
 * pointer to const, `v` for a value; the dtype's character of <uhal/host_module.h>, `-` for any
 * other type; and the bytes as four hexadecimal digits. uhal/images/header_signature.py reads it.
 *
 * Define UHAL_SIGNATURES as 0 to leave the constants out.
 */
#ifndef UHAL_SIGNATURE_H
#define UHAL_SIGNATURE_H

/* Only nvcc drops unused symbols with external linkage. In SPIR-V `used` makes an additional
 * variable, which would keep modules from being cut (opencl_backend/slices.py). */
#if defined(__CUDACC__)
#define UHAL_SIGNATURE_DEVICE __device__
#define UHAL_SIGNATURE_USED __attribute__((used))
#else
#define UHAL_SIGNATURE_DEVICE __attribute__((device))
#define UHAL_SIGNATURE_USED
#endif

#define UHAL_TELL(entry, parameters)                                                               \
    struct uhal_parameters_of_##entry {                                                            \
        static void list parameters;                                                               \
    };                                                                                             \
    extern "C" UHAL_SIGNATURE_DEVICE const decltype(::uhal_signature::made(                        \
        &uhal_parameters_of_##entry::list, #parameters)) uhal_signature_##entry;                   \
    extern "C" UHAL_SIGNATURE_DEVICE UHAL_SIGNATURE_USED const decltype(::uhal_signature::made(    \
        &uhal_parameters_of_##entry::list, #parameters)) uhal_signature_##entry =                  \
        ::uhal_signature::made(&uhal_parameters_of_##entry::list, #parameters);

namespace uhal_signature {

template <size_t size> struct Text {
    char characters[size];
};

template <class Type> struct Code {
    static constexpr char value = '-';
};
template <class Type> struct Code<const Type> : Code<Type> {};
template <class Type> struct Code<volatile Type> : Code<Type> {};
template <class Type> struct Code<const volatile Type> : Code<Type> {};

#define UHAL_CODE(type, character)                                                                 \
    template <> struct Code<type> {                                                                \
        static constexpr char value = character;                                                   \
    };
UHAL_CODE(bool, '?')
UHAL_CODE(signed char, 'b')
UHAL_CODE(unsigned char, 'B')
UHAL_CODE(char, char(-1) < 0 ? 'b' : 'B')
UHAL_CODE(short, 'h')
UHAL_CODE(unsigned short, 'H')
UHAL_CODE(int, 'i')
UHAL_CODE(unsigned int, 'I')
UHAL_CODE(long, sizeof(long) == 8 ? 'q' : 'i')
UHAL_CODE(unsigned long, sizeof(long) == 8 ? 'Q' : 'I')
UHAL_CODE(long long, 'q')
UHAL_CODE(unsigned long long, 'Q')
UHAL_CODE(f8e4m3, '8')
UHAL_CODE(f16, 'e')
UHAL_CODE(bf16, 'g')
UHAL_CODE(float, 'f')
UHAL_CODE(double, 'd')
#undef UHAL_CODE

template <class Type, bool is_enum> struct Number {
    typedef Type type;
};
template <class Type> struct Number<Type, true> {
    typedef __underlying_type(Type) type;
};

template <class Type> struct Parameter {
    static constexpr char kind = 'v';
    static constexpr char code = Code<typename Number<Type, __is_enum(Type)>::type>::value;
};
template <class Type> struct Parameter<Type *> {
    static constexpr char kind = 'p';
    static constexpr char code = Code<Type>::value;
};
template <class Type> struct Parameter<const Type *> {
    static constexpr char kind = 'c';
    static constexpr char code = Code<Type>::value;
};
template <class Type> struct Parameter<Type *const> : Parameter<Type *> {};

constexpr char hexadecimal(size_t digit) { return "0123456789abcdef"[digit & 15]; }

template <class... Types, size_t size>
constexpr Text<6 * sizeof...(Types) + 1 + size> made(void (*)(Types...), const char (&text)[size]) {
    constexpr size_t count = sizeof...(Types);
    const char kinds[count + 1] = {Parameter<Types>::kind..., '|'};
    const char codes[count + 1] = {Parameter<Types>::code..., '|'};
    const size_t sizes[count + 1] = {sizeof(Types)..., 0};
    Text<6 * count + 1 + size> told = {};
    for (size_t index = 0; index != count; ++index) {
        char *const at = told.characters + 6 * index;
        at[0] = kinds[index];
        at[1] = codes[index];
        for (int digit = 0; digit < 4; ++digit)
            at[2 + digit] = hexadecimal(sizes[index] >> (12 - 4 * digit));
    }
    told.characters[6 * count] = '|';
    for (size_t index = 0; index != size; ++index)
        told.characters[6 * count + 1 + index] = text[index];
    return told;
}

} // namespace uhal_signature

#endif
