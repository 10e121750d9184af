// The inverse of the error function: erf(inverse_error(x)) = x, for |x| < 1.
//
// M. Giles, "Approximating the erfinv function", GPU Computing Gems Jade Edition, 2012, chapter 10:
// with w = -ln(1 - x^2) the result is x times a polynomial, of w near the middle and of sqrt(w) in
// the tails. f32 has one tail and f64 two. Results are within 2.5 ulp, also in the tails: 1 - x is
// exact there, so nothing cancels. 1 and -1 give infinities, numbers beyond give NaN.
#ifndef UBRIDGE_INVERSE_ERROR_H
#define UBRIDGE_INVERSE_ERROR_H

#include <math.h>

#include <uhal/kernel.h>

// The polynomial with these coefficients, highest power first. Unrolled, f64's coefficients would
// take all registers of some AMD devices, so a loop reads them from constant memory.
template <class T, u32 count> DEVICE_FUNCTION T polynomial(const T (&coefficients)[count], T x)
{
    T sum = coefficients[0];
#if defined(__HIP__)
    ROLLED
#endif
    for (u32 i = 1; i < count; ++i)
        sum = coefficients[i] + sum * x;
    return sum;
}

// x times the factor. At x = 1 and -1 the factor is infinite, but the polynomials are finite.
template <class T> DEVICE_FUNCTION T from_factor(T x, T factor)
{
    const T magnitude = x < T(0) ? -x : x;
    return x * (magnitude == T(1) ? T(HUGE_VAL) : factor);
}

// The factor of x, for each type.
DEVICE_FUNCTION f32 middle_factor(f32 w)
{
    static constexpr f32 middle[] = {
        2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 2.1858087e-04f,
        -1.25372503e-03f, -4.17768164e-03f, 2.46640727e-01f, 1.50140941f};
    return polynomial(middle, w - 2.5f);
}
DEVICE_FUNCTION f32 tail_factor(f32 w)
{
    static constexpr f32 tail[] = {
        -2.00214257e-04f, 1.00950558e-04f, 1.34934322e-03f, -3.67342844e-03f, 5.73950773e-03f,
        -7.6224613e-03f, 9.43887047e-03f, 1.00167406f, 2.83297682f};
    return polynomial(tail, sqrtf(w) - 3.0f);
}
DEVICE_FUNCTION f64 middle_factor(f64 w)
{
    static constexpr f64 middle[] = {
        -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
        1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
        6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
        2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
        1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
        4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
        0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
        0.24015818242558961693, 1.6536545626831027356};
    return polynomial(middle, w - 3.125);
}
DEVICE_FUNCTION f64 tail_factor(f64 w)
{
    const f64 root = sqrt(w);
    if (w < 16.0) {
        static constexpr f64 tail[] = {
            2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
            1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
            2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
            6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
            0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
            -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334,
            3.0838856104922207635};
        return polynomial(tail, root - 3.25);
    }
    static constexpr f64 end[] = {
        -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
        -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
        2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
        -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
        7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
        1.0103004648645343977, 4.8499064014085844221};
    return polynomial(end, root - 5.0);
}

DEVICE_FUNCTION f32 inverse_error(f32 x)
{
    const f32 w = -logf((1.0f - x) * (1.0f + x));
    return from_factor(x, w < 5.0f ? middle_factor(w) : tail_factor(w));
}

DEVICE_FUNCTION f64 inverse_error(f64 x)
{
    const f64 w = -log((1.0 - x) * (1.0 + x));
    return from_factor(x, w < 6.25 ? middle_factor(w) : tail_factor(w));
}

#endif
